package metrics

import "testing"

// Samples of one metric are together, whosever they are; a label without a value is none, and every other value is
// readable text.
func TestReadingsAsText(t *testing.T) {
	var text Text
	second := Readings{Labels: Labels{Name: "b"}}
	second.Add("container_processes", 2)
	second.Add("container_network_receive_bytes_total", 7, "a\"\\\n\xff")
	first := Readings{Labels: Labels{Container: "app", Name: "a"}}
	first.Add("container_processes", 1)
	first.Add("container_cpu_usage_seconds_total", 0.25, "total")
	text.Readings([]Readings{first, second})
	const want = `# HELP container_cpu_usage_seconds_total CPU time.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",name="a",cpu="total"} 0.25
# HELP container_processes Processes.
# TYPE container_processes gauge
container_processes{container="app",name="a"} 1
container_processes{name="b"} 2
# HELP container_network_receive_bytes_total Bytes received.
# TYPE container_network_receive_bytes_total counter
container_network_receive_bytes_total{name="b",interface="a\"\\\n` + "\uFFFD" + `"} 7
`
	if got := text.String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}
