package server

import (
	"os"
	"path/filepath"
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

// A metric is read from the files of the cgroup's version, in its own unit; what the kernel does not count has no value.
func TestMetricsOfBothVersions(t *testing.T) {
	for _, unified := range []bool{false, true} {
		group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: unified}}}
		dir := group.Dir(group.Hierarchies[0])
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"cpuacct.usage": "1999999999\n", "cpu.stat": "usage_usec 2500000\n", "memory.stat": "total_rss 10\nanon 20\n",
			"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want := map[string]uint64{"container_cpu_usage_seconds_total": 1, "container_memory_rss": 10}
		if unified {
			want = map[string]uint64{
				"container_cpu_usage_seconds_total": 2, "container_memory_rss": 20,
				"container_pressure_memory_waiting_seconds_total": 3,
			}
		}
		got := make(map[string]uint64)
		for _, m := range metrics {
			if n, ok := filesOf(group, "").number(m); ok {
				got[m.name] = n
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("v2 %t: %s", unified, diff)
		}
	}
}
