package metrics

import (
	"strconv"
	"strings"
)

// Interface is what an interface of a network namespace has carried: the columns of proc_pid_net(5), dev.
type Interface struct {
	Name    string
	Columns []uint64 // at least as many as the constants below count
}

// Some columns of an Interface. Packets are beside bytes, and dropped packets beside errors.
const (
	RxBytes  = 0
	RxErrors = 2
	TxBytes  = 8
	TxErrors = 10
	columns  = 16
)

// MostInterfaces is of how many interfaces a pod has numbers: an app may make many thousands, whose metrics would not
// fit into a message.
const MostInterfaces = 100

// ParseInterfaces reads proc_pid_net(5), dev. It leaves out the loopback, and returns at most MostInterfaces and kept.
func ParseInterfaces(text, kept string) (all []Interface) {
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		// An app may name an interface as it likes, but an answer with other text than UTF-8 is not sent.
		i, fields := Interface{Name: strings.ToValidUTF8(strings.TrimSpace(name), "\uFFFD")}, strings.Fields(rest)
		if i.Name == "lo" || len(fields) < columns { // two lines are titles
			continue
		}
		if len(all) >= MostInterfaces && i.Name != kept {
			continue
		}
		for _, field := range fields {
			n, _ := strconv.ParseUint(field, 10, 64) // the kernel writes numbers
			i.Columns = append(i.Columns, n)
		}
		all = append(all, i)
	}
	return all
}

// AddInterfaces adds the metrics of a pod's interfaces.
func (r *Readings) AddInterfaces(all []Interface) {
	for _, i := range all {
		for _, m := range networkMetrics {
			r.Add(m.name, float64(i.Columns[m.column]), i.Name)
		}
	}
}
