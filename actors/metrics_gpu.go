package actors

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// gpuSeries are the devices' gauges under the names of NVIDIA's DCGM exporter, so that dashboards made for it
// work. value returns a negative number for what the device does not report; it is left out then.
var gpuSeries = []struct {
	name, help string
	value      func(GPUInfo) float64
}{
	{"DCGM_FI_DEV_GPU_UTIL", "Time with a kernel running, percent.", func(g GPUInfo) float64 { return g.Utilisation * 100 }},
	{"DCGM_FI_DEV_MEM_COPY_UTIL", "Time with device memory read or written, percent.", func(g GPUInfo) float64 { return g.MemoryBusy * 100 }},
	{"DCGM_FI_DEV_FB_USED", "Device memory in use, MiB.", func(g GPUInfo) float64 { return float64(g.MemoryUsed) / (1 << 20) }},
	{"DCGM_FI_DEV_FB_FREE", "Device memory not in use, MiB.", func(g GPUInfo) float64 {
		if g.MemoryUsed < 0 {
			return -1
		}
		return float64(g.MemoryTotal-g.MemoryUsed) / (1 << 20)
	}},
	{"DCGM_FI_DEV_SM_CLOCK", "Clock of the multiprocessors, MHz.", func(g GPUInfo) float64 { return g.SMClock }},
	{"DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory, MHz.", func(g GPUInfo) float64 { return g.MemClock }},
	{"DCGM_FI_DEV_POWER_USAGE", "Power drawn, W.", func(g GPUInfo) float64 { return g.PowerW }},
	{"DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power allowed, W.", func(g GPUInfo) float64 { return g.PowerLimitW }},
	{"DCGM_FI_DEV_GPU_TEMP", "Temperature, degrees Celsius.", func(g GPUInfo) float64 { return g.TempC }},
	{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "Why clocks are below their maximum, NVML's bits.", func(g GPUInfo) float64 { return float64(g.ThrottleSet) }},
	{"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Memory errors corrected since the driver was loaded.", func(g GPUInfo) float64 { return g.ECCFixed }},
	{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Memory errors not corrected since the driver was loaded.", func(g GPUInfo) float64 { return g.ECCLost }},
	{"waybill:gpu_processes", "Processes that compute on the device, as far as the driver shows them.", func(g GPUInfo) float64 { return float64(len(g.Processes)) }},
}

// gpuCollector reads the devices at a scrape.
type gpuCollector struct {
	read   func() ([]GPUInfo, error)
	descs  []*prometheus.Desc
	failed *prometheus.Desc
}

func newGPUCollector(read func() ([]GPUInfo, error), labels prometheus.Labels) *gpuCollector {
	c := &gpuCollector{
		read:   read,
		failed: prometheus.NewDesc("waybill:gpu_telemetry_failed", "1 if the devices could not be read at this scrape; the series above are missing then.", nil, labels),
	}
	for _, s := range gpuSeries {
		c.descs = append(c.descs, prometheus.NewDesc(s.name, s.help, []string{"gpu", "UUID", "modelName"}, labels))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *gpuCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
	out <- c.failed
}

// Collect implements prometheus.Collector.
func (c *gpuCollector) Collect(out chan<- prometheus.Metric) {
	devices, err := c.safely()
	failed := 0.0
	if err != nil {
		failed = 1
	}
	out <- prometheus.MustNewConstMetric(c.failed, prometheus.GaugeValue, failed)
	for _, g := range devices {
		for i, s := range gpuSeries {
			if v := s.value(g); v >= 0 {
				out <- prometheus.MustNewConstMetric(c.descs[i], prometheus.GaugeValue, v, strconv.Itoa(g.Index), g.UUID, g.Name)
			}
		}
	}
}

// safely reads the devices; a panic there, on the registry's own goroutine, would end the process.
func (c *gpuCollector) safely() (devices []GPUInfo, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("telemetry: %v", p)
		}
	}()
	return c.read()
}
