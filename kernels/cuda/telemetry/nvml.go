//go:build cuda

package telemetry

import (
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"waybill/kernels"
)

// needed are the library's functions that a reading calls. They are looked up first: the binding resolves a name
// when it is called, and one that is missing ends the process.
var needed = []string{
	"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetUtilizationRates",
	"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit",
	"nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTotalEccErrors",
	"nvmlDeviceGetComputeRunningProcesses_v3",
}

// throttleReasons names NVML's bits, but for an idle GPU's, which throttles nothing.
var throttleReasons = []struct {
	bit  uint64
	name string
}{
	{nvml.ClocksEventReasonApplicationsClocksSetting, "clocks set by a user"},
	{nvml.ClocksEventReasonSwPowerCap, "power limit"},
	{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
	{nvml.ClocksEventReasonSyncBoost, "sync boost"},
	{nvml.ClocksEventReasonSwThermalSlowdown, "temperature (software)"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "temperature (hardware)"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
	{nvml.ClocksEventReasonDisplayClockSetting, "display clocks"},
}

// Open starts the management library and returns a function that reads all devices. The function may be called
// from any goroutine, takes at most a quarter of a second and gives a reading not older than a second. The library
// stays open until the process ends.
func Open() (func() ([]kernels.GPUInfo, error), error) {
	if r := nvml.Init(); r != nvml.SUCCESS {
		// No other call of the library is allowed now.
		return nil, fmt.Errorf("NVML: %s", initError(r))
	}
	for _, name := range needed {
		if err := nvml.Extensions().LookupSymbol(name); err != nil {
			return nil, fmt.Errorf("NVML: the driver's library has no %s", name)
		}
	}
	n, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("NVML: counting devices: %s", nvml.ErrorString(r))
	}
	devices := make([]nvml.Device, n)
	for i := range devices {
		if devices[i], r = nvml.DeviceGetHandleByIndex(i); r != nvml.SUCCESS {
			return nil, fmt.Errorf("NVML: device %d: %s", i, nvml.ErrorString(r))
		}
	}
	p := &poll{now: time.Now, read: func() ([]kernels.GPUInfo, error) {
		infos := make([]kernels.GPUInfo, len(devices))
		for i, d := range devices {
			var err error
			if infos[i], err = readDevice(i, d); err != nil {
				return nil, err
			}
		}
		return infos, nil
	}}
	return p.get, nil
}

// initError names the one cause that users meet without the library's help, which may not be there.
func initError(r nvml.Return) string {
	if r == nvml.ERROR_LIBRARY_NOT_FOUND {
		return "libnvidia-ml.so.1 is not installed (it comes with the driver)"
	}
	return fmt.Sprintf("starting the library: error %d", r)
}

// readDevice reads one device. What it does not support is -1; a device that is gone is an error.
func readDevice(index int, d nvml.Device) (kernels.GPUInfo, error) {
	v := kernels.GPUInfo{
		Index: index, Utilisation: -1, MemoryBusy: -1, MemoryUsed: -1, MemoryTotal: -1,
		Processes: []kernels.GPUProcess{},
	}
	var r nvml.Return
	if v.Name, r = d.GetName(); r != nvml.SUCCESS {
		return v, fmt.Errorf("NVML: device %d: %s", index, nvml.ErrorString(r))
	}
	v.UUID, _ = d.GetUUID()
	if u, r := d.GetUtilizationRates(); r == nvml.SUCCESS {
		v.Utilisation, v.MemoryBusy = float64(u.Gpu)/100, float64(u.Memory)/100
	}
	if m, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
		v.MemoryUsed, v.MemoryTotal = int64(m.Used), int64(m.Total)
	}
	v.SMClock = known(d.GetClockInfo(nvml.CLOCK_SM))
	v.MemClock = known(d.GetClockInfo(nvml.CLOCK_MEM))
	v.PowerW = milli(d.GetPowerUsage())
	v.PowerLimitW = milli(d.GetEnforcedPowerLimit())
	v.TempC = known(d.GetTemperature(nvml.TEMPERATURE_GPU))
	v.ECCFixed = known(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC))
	v.ECCLost = known(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC))
	if bits, r := d.GetCurrentClocksEventReasons(); r == nvml.SUCCESS {
		v.ThrottleSet, v.Throttle = bits, reasons(bits)
	}
	if list, r := d.GetComputeRunningProcesses(); r == nvml.SUCCESS {
		for _, p := range list {
			memory := int64(p.UsedGpuMemory)
			if p.UsedGpuMemory == ^uint64(0) { // NVML_VALUE_NOT_AVAILABLE
				memory = -1
			}
			v.Processes = append(v.Processes, kernels.GPUProcess{PID: int(p.Pid), Memory: memory})
		}
	}
	return v, nil
}

// known returns a reading, or -1 if the device does not give it.
func known[T uint32 | uint64](v T, r nvml.Return) float64 {
	if r != nvml.SUCCESS {
		return -1
	}
	return float64(v)
}

// milli is known for thousandths.
func milli(v uint32, r nvml.Return) float64 {
	if r != nvml.SUCCESS {
		return -1
	}
	return float64(v) / 1000
}

// reasons names the bits.
func reasons(bits uint64) string {
	var names []string
	for _, t := range throttleReasons {
		if bits&t.bit != 0 {
			names = append(names, t.name)
			bits &^= t.bit
		}
	}
	if bits &^= nvml.ClocksEventReasonGpuIdle; bits != 0 {
		names = append(names, fmt.Sprintf("unknown (0x%x)", bits))
	}
	return strings.Join(names, ", ")
}
