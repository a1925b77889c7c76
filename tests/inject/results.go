package inject

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// results is a file of lines that several processes append: how often a role makes a call in an operation, and the
// outcomes of points. A later run goes on where it ends.
type results struct {
	counts   map[string]map[place]int // by operation
	outcomes map[point]outcome
}

func readResults(path string) (results, error) {
	all := results{map[string]map[place]int{}, map[point]outcome{}}
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return all, err
	}
	defer file.Close()
	for in := bufio.NewScanner(file); ; {
		if !in.Scan() {
			return all, in.Err()
		}
		words := strings.Split(in.Text(), "\t")
		if len(words) != 5 && len(words) != 4 {
			return all, fmt.Errorf("%s: line %q", path, in.Text())
		}
		if words[0] == "count" {
			n, err := strconv.Atoi(words[4])
			if err != nil {
				return all, fmt.Errorf("%s: line %q", path, in.Text())
			}
			if all.counts[words[1]] == nil {
				all.counts[words[1]] = map[place]int{}
			}
			all.counts[words[1]][place{role: role(words[2]), call: words[3]}] = n
			continue
		}
		p, err := parsePoint(words[1])
		if err != nil {
			return all, fmt.Errorf("%s: %w", path, err)
		}
		all.outcomes[p] = outcome{verdict(words[2]), words[3]}
	}
}

// appendLine adds a line to a file in one write, so that processes can share the file.
func appendLine(path string, words ...string) error {
	for i, word := range words {
		words[i] = strings.NewReplacer("\t", " ", "\n", " ¦ ").Replace(strings.TrimSpace(word))
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(words, "\t") + "\n")
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// points lists the points of an operation in a fixed order: for each call a kill, unless the call only reads, and the
// errnos with which the call may fail.
func (r results) points(operation string) []point {
	known := map[string]call{}
	for _, c := range calls() {
		known[c.name] = c
	}
	places := slices.SortedFunc(maps.Keys(r.counts[operation]), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.call, b.call))
	})
	var all []point
	for _, at := range places {
		c := known[strings.TrimSuffix(at.call, reading)]
		for i := range r.counts[operation][at] {
			at.index = i + 1
			if !strings.HasSuffix(at.call, reading) {
				all = append(all, point{operation, at, killFault})
			}
			for _, errno := range faultsOf(c, at.call) {
				all = append(all, point{operation, at, unix.ErrnoName(errno)})
			}
		}
	}
	return all
}

// explanation is why outcomes with that detail stay at these points.
type explanation struct {
	point, detail *regexp.Regexp
	reason        string
}

func explanations() []explanation {
	return []explanation{
		{
			regexp.MustCompile("^cri-[^/]*Sandbox/plugin/"), regexp.MustCompile("^left: rule "),
			"the machine's CNI plugins firewall and portmap report success although their iptables has failed",
		},
		{
			regexp.MustCompile("^cri-Remove[^/]*/server/unlinkat/"), regexp.MustCompile("^left: file cri/pods/[^/ ]* drwx------ 0$"),
			"the disk refuses to remove an empty folder, which the server's next start removes",
		},
		{
			regexp.MustCompile("^net-[^/]*/plugin/"), regexp.MustCompile("^left: rule chain masq_checks {"),
			"setup chooses nftables if its trial of iptables fails; CNI's table without pods stays, as a bridge does",
		},
	}
}

// reasonFor returns why the outcome of a point stays, or "".
func reasonFor(p point, o outcome) string {
	for _, e := range explanations() {
		if o.verdict == left && e.point.MatchString(p.String()) && e.detail.MatchString(o.detail) {
			return e.reason
		}
	}
	return ""
}

// table prints the outcomes, a row for each operation and fault, and the points that are not clean. It returns how many
// of them have no reason.
func (r results) table(out io.Writer, operations []operation) (failed int) {
	type row struct{ operation, fault string }
	rows := map[row]map[verdict]int{}
	var bad []point
	for p, o := range r.outcomes {
		for _, key := range []row{{p.operation, p.fault}, {p.operation, "all"}, {"all", "all"}} {
			if rows[key] == nil {
				rows[key] = map[verdict]int{}
			}
			rows[key][o.verdict]++
			rows[key][""]++
		}
		if o.verdict != clean {
			bad = append(bad, p)
		}
	}
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "operation\tfault\tof\tpoints\tclean\tleft\thung\twrong\tunreached")
	names := []string{"all"}
	for _, op := range operations {
		names = append(names, op.name)
	}
	for _, key := range slices.SortedFunc(maps.Keys(rows), func(a, b row) int {
		return cmp.Or(cmp.Compare(slices.Index(names, a.operation), slices.Index(names, b.operation)), cmp.Compare(a.fault, b.fault))
	}) {
		of := ""
		if key.fault == "all" && key.operation != "all" {
			of = strconv.Itoa(len(r.points(key.operation)))
		}
		n := rows[key]
		fmt.Fprintf(lines, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", key.operation, key.fault, of, n[""], n[clean], n[left], n[hung], n[wrong], n[unreached])
	}
	_ = lines.Flush() // the writer is a buffer or the test's output
	slices.SortFunc(bad, func(a, b point) int { return cmp.Compare(a.String(), b.String()) })
	for _, p := range bad {
		fmt.Fprintf(out, "%s: %s: %s\n", p, r.outcomes[p].verdict, r.outcomes[p].detail)
		if reason := reasonFor(p, r.outcomes[p]); reason != "" {
			fmt.Fprintf(out, "\t%s\n", reason)
		} else {
			failed++
		}
	}
	return failed
}
