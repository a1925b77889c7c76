package metrics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/launcher/cgroups"

	"github.com/google/go-cmp/cmp"
)

func TestNumbersOfCgroupFiles(t *testing.T) {
	for text, want := range map[string]map[string]uint64{
		"":                                      {},
		"12\n":                                  {"": 12},
		"max\n":                                 {"": 0},
		"anon 4096\nfile 8192\n":                {"anon": 4096, "file": 8192},
		"8:0 Read 10\n8:0 Write 20\nTotal 30\n": {"8:0 Read": 10, "8:0 Write": 20, "Total": 30},
		"8:0 rbytes=1 wbytes=2\n":               {"8:0 rbytes": 1, "8:0 wbytes": 2},
		"some avg10=0.12 avg60=0.00 avg300=0.00 total=7": {"some total": 7},
	} {
		if diff := cmp.Diff(want, parseNumbers(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// A metric is read from the files of the version that has it, in its own unit; what the kernel does not count has no
// value. Where both versions are, version 2 has a cpu.stat of its own.
func TestMetricsOfBothVersions(t *testing.T) {
	v1 := map[string]string{
		"cpuacct.usage": "1999999999\n", "cpu.stat": "nr_periods 5\n", "memory.stat": "rss 9\ntotal_rss 10\ntotal_pgfault 11\n",
	}
	v2 := map[string]string{
		"cpu.stat": "usage_usec 2500000\nnr_periods 6\n", "memory.stat": "anon 20\npgfault 21\n",
		"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n",
	}
	core := map[string]string{"cpu.stat": "usage_usec 2500000\n"}
	for name, tt := range map[string]struct {
		v2, v1 map[string]string
		want   map[string]float64
		faults uint64
	}{
		"v1": {nil, v1, map[string]float64{
			"container_cpu_usage_seconds_total": 1.999999999, "container_cpu_cfs_periods_total": 5, "container_memory_rss": 10,
		}, 11},
		"v2": {v2, nil, map[string]float64{
			"container_cpu_usage_seconds_total": 2.5, "container_cpu_cfs_periods_total": 6, "container_memory_rss": 20,
			"container_pressure_memory_waiting_seconds_total": 3,
		}, 21},
		"hybrid": {core, v1, map[string]float64{
			"container_cpu_usage_seconds_total": 1.999999999, "container_cpu_cfs_periods_total": 5, "container_memory_rss": 10,
		}, 11},
		"hybrid with memory in v2": {v2, map[string]string{"cpuacct.usage": "1000000000"}, map[string]float64{
			"container_cpu_usage_seconds_total": 1, "container_cpu_cfs_periods_total": 6, "container_memory_rss": 20,
			"container_pressure_memory_waiting_seconds_total": 3,
		}, 21},
	} {
		group := &cgroups.Group{Path: "pod"}
		for i, files := range []map[string]string{tt.v2, tt.v1} { // systemd mounts version 2 first
			h := cgroups.Hierarchy{Mount: t.TempDir(), V2: i == 0}
			if files != nil {
				group.Hierarchies = append(group.Hierarchies, h)
				writeFiles(t, group.Dir(h), files)
			}
		}
		got := make(map[string]float64)
		for _, m := range Table() {
			if n, ok := FilesOf(group, "").number(m); ok {
				got[m.Name] = n
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if faults, ok := FilesOf(group, "").MemoryStat("pgfault"); !ok || faults != tt.faults {
			t.Errorf("%s: %d page faults, %t", name, faults, ok)
		}
	}
}

// A device's numbers are in a line of version 2, and in a line for each operation of version 1.
func TestMetricsOfDevices(t *testing.T) {
	for _, unified := range []bool{false, true} {
		group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: unified}}}
		writeFiles(t, group.Dir(group.Hierarchies[0]), map[string]string{
			"blkio.throttle.io_service_bytes_recursive": "0:1 Read 10\n0:1 Write 20\n0:1 Total 30\nTotal 30\n",
			"blkio.throttle.io_serviced_recursive":      "0:1 Read 1\n0:1 Write 2\n",
			"io.stat":                                   "0:1 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
		})
		values := new(Readings)
		values.addDevices(FilesOf(group, ""))
		got := make(map[string]float64)
		for _, m := range values.Samples {
			got[m.Name+" "+strings.Join(m.Labels, " ")] = m.Value
		}
		want := map[string]float64{
			"container_fs_reads_bytes_total 0:1": 10, "container_blkio_device_usage_total 0:1 0 1 Read": 10,
			"container_fs_writes_bytes_total 0:1": 20, "container_blkio_device_usage_total 0:1 0 1 Write": 20,
			"container_fs_reads_total 0:1": 1, "container_fs_writes_total 0:1": 2,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("v2 %t: %s", unified, diff)
		}
	}
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAMetricThatTheTableLacksHasNoNumber(t *testing.T) {
	group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: true}}}
	writeFiles(t, group.Dir(group.Hierarchies[0]), map[string]string{"memory.current": "1"})
	if n, ok := FilesOf(group, "").Bytes("container_unknown"); ok {
		t.Errorf("it has %d", n)
	}
}
