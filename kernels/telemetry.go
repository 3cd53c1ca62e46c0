package kernels

// GPUInfo is one device's telemetry at one moment. A number that the device does not report is -1.
type GPUInfo struct {
	Index       int          `json:"index" doc:"the device's number in the driver's order"`
	UUID        string       `json:"uuid" doc:"the device's identity"`
	Name        string       `json:"name" doc:"the device's product name"`
	Utilisation float64      `json:"utilisation" doc:"share of time with a kernel running, 0 to 1; -1, here and below: not reported"`
	MemoryBusy  float64      `json:"memory_busy" doc:"share of time with device memory read or written, 0 to 1"`
	MemoryUsed  int64        `json:"memory_used" doc:"bytes in use, by all processes"`
	MemoryTotal int64        `json:"memory_total" doc:"bytes"`
	SMClock     float64      `json:"sm_clock_mhz" doc:"MHz"`
	MemClock    float64      `json:"memory_clock_mhz" doc:"MHz"`
	PowerW      float64      `json:"power_w" doc:"watts drawn"`
	PowerLimitW float64      `json:"power_limit_w" doc:"watts allowed"`
	TempC       float64      `json:"temperature_c" doc:"degrees Celsius"`
	Throttle    string       `json:"throttle" doc:"reasons why clocks are below their maximum; empty: none"`
	ThrottleSet uint64       `json:"throttle_bits" doc:"the same as NVML's bits"`
	ECCFixed    float64      `json:"ecc_corrected" doc:"memory errors corrected since the driver was loaded"`
	ECCLost     float64      `json:"ecc_uncorrected" doc:"memory errors that could not be corrected, since then"`
	Processes   []GPUProcess `json:"processes" doc:"processes that compute on the device, as far as the driver shows them"`
}

// GPUProcess is a process that uses a device.
type GPUProcess struct {
	PID    int   `json:"pid" doc:"process number, of the host's namespace"`
	Memory int64 `json:"memory" doc:"bytes of device memory; -1: not reported"`
}
