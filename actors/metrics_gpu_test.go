package actors

import (
	"errors"
	"fmt"
	"testing"
)

// aGPU reports everything but its power.
func aGPU() GPUInfo {
	return GPUInfo{
		Index: 3, UUID: "GPU-1", Name: "H", Utilisation: .5, MemoryBusy: .25, MemoryUsed: 3 << 20, MemoryTotal: 8 << 20,
		SMClock: 1980, MemClock: 3201, PowerW: -1, PowerLimitW: -1, TempC: 40, ThrottleSet: 4, Throttle: "power limit",
	}
}

func TestMemoryThatIsNotReportedIsNeitherUsedNorFree(t *testing.T) {
	cfg := testConfig()
	cfg.Telemetry = func() ([]GPUInfo, error) {
		g := aGPU()
		g.MemoryUsed, g.MemoryTotal = -1, -1
		return []GPUInfo{g}, nil
	}
	got := gauges(t, startEngine(t, cfg))
	for _, name := range []string{"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s is %g", name, v)
		}
	}
}

// gauges returns the values of the devices' series.
func gauges(t *testing.T, e *testEngine) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	names := map[string]bool{"waybill:gpu_telemetry_failed": true}
	for _, s := range gpuSeries {
		names[s.name] = true
	}
	for _, f := range families(t, e) {
		if names[f.GetName()] {
			for _, m := range f.GetMetric() {
				values[f.GetName()] = m.GetGauge().GetValue()
			}
		}
	}
	return values
}

func TestGPUGaugesHaveWhatTheDeviceReports(t *testing.T) {
	cfg := testConfig()
	cfg.Telemetry = func() ([]GPUInfo, error) { return []GPUInfo{aGPU()}, nil }
	got := gauges(t, startEngine(t, cfg))
	want := map[string]float64{
		"DCGM_FI_DEV_GPU_UTIL": 50, "DCGM_FI_DEV_MEM_COPY_UTIL": 25, "DCGM_FI_DEV_FB_USED": 3, "DCGM_FI_DEV_FB_FREE": 5,
		"DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_MEM_CLOCK": 3201, "DCGM_FI_DEV_GPU_TEMP": 40,
		"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 4, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 0, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
		"waybill:gpu_processes": 0, "waybill:gpu_telemetry_failed": 0,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestAScrapeOutlivesItsTelemetry(t *testing.T) {
	for name, read := range map[string]func() ([]GPUInfo, error){
		"error": func() ([]GPUInfo, error) { return nil, errors.New("the driver is gone") },
		"panic": func() ([]GPUInfo, error) { panic("the driver is gone") },
	} {
		cfg := testConfig()
		cfg.Telemetry = read
		got := gauges(t, startEngine(t, cfg))
		if len(got) != 1 || got["waybill:gpu_telemetry_failed"] != 1 {
			t.Errorf("%s: %v, want only waybill:gpu_telemetry_failed 1", name, got)
		}
	}
}
