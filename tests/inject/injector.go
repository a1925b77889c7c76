package inject

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// killFault is the fault that kills the process before the call; the others are names of an errno.
const killFault = "KILL"

// place is where a fault is injected: before or in the place of the index-th call, counted over all threads of a role
// from 1.
type place struct {
	role  role
	call  string
	index int
}

// point is a fault at a place in an operation. It is named OPERATION/ROLE/CALL/INDEX/FAULT.
type point struct {
	operation string
	place
	fault string
}

func (p point) String() string {
	return fmt.Sprintf("%s/%s/%s/%d/%s", p.operation, p.role, p.call, p.index, p.fault)
}

// parsePoint is the reverse of String.
func parsePoint(name string) (p point, err error) {
	words := strings.Split(name, "/")
	if len(words) != 5 {
		return p, fmt.Errorf("point %q: want OPERATION/ROLE/CALL/INDEX/FAULT", name)
	}
	index, err := strconv.Atoi(words[3])
	if err != nil || index < 1 {
		return p, fmt.Errorf("point %q: index %q", name, words[3])
	}
	return point{words[0], place{role(words[1]), words[2], index}, words[4]}, nil
}

// selection chooses points: a regular expression for each word of their names; all words, if it has fewer.
type selection []*regexp.Regexp

func parseSelection(text string) (selection, error) {
	var s selection
	for word := range strings.SplitSeq(text, "/") {
		pattern, err := regexp.Compile("^(?:" + cmp.Or(word, ".*") + ")$")
		if err != nil {
			return nil, err
		}
		s = append(s, pattern)
	}
	return s, nil
}

// matches reports whether the words of a name, which may be its beginning, are chosen.
func (s selection) matches(name string) bool {
	for i, word := range strings.Split(name, "/") {
		if i < len(s) && !s[i].MatchString(word) {
			return false
		}
	}
	return true
}

// injector answers the notifications of all listeners of a world.
type injector struct {
	calls map[uint32]call

	mutex  sync.Mutex
	counts map[place]int // guarded by mutex; calls so far, by role and call; nil while nothing counts
	armed  *point        // guarded by mutex; nil once it is reached
	hit    string        // guarded by mutex; describes the call of the point, "" before it is reached
	kills  bool          // guarded by mutex; the last point's fault is a kill
}

func newInjector() *injector {
	i := &injector{calls: map[uint32]call{}}
	for _, c := range calls() {
		i.calls[c.number] = c
	}
	return i
}

// begin counts from now on, and injects the fault of a point, nil for none.
func (i *injector) begin(p *point) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.counts, i.armed, i.hit, i.kills = map[place]int{}, p, "", p != nil && p.fault == killFault
}

// killed reports whether the fault of the last point is a kill.
func (i *injector) killed() bool {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.kills
}

// end counts no longer. It returns how often each role has made each call, and the call of the point, "" if it was not
// reached.
func (i *injector) end() (map[place]int, string) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	counts := i.counts
	i.counts, i.armed = nil, nil
	return counts, i.hit
}

func (i *injector) counting() bool {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.counts != nil
}

// decide is serve's: the errno for a call, or false for a process that it has killed.
func (i *injector) decide(n notification) (unix.Errno, bool) {
	if !i.counting() {
		return 0, true
	}
	c := i.calls[n.number]
	r, name := roleOf(n.tid), c.nameOf(n)
	if r == "" || name == "" {
		return 0, true
	}
	fault := i.count(place{role: r, call: name})
	if fault == "" {
		return 0, true
	}
	i.describe(n, name)
	if fault == killFault {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.tid))
		pid, numberErr := strconv.Atoi(field(string(status), "Tgid")[0])
		return 0, err != nil || numberErr != nil || unix.Kill(pid, unix.SIGKILL) != nil
	}
	for _, errno := range faultsOf(c, name) {
		if unix.ErrnoName(errno) == fault {
			return errno, true
		}
	}
	return 0, true
}

// describe keeps the process, the name and the arguments of the point's call.
func (i *injector) describe(n notification, name string) {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.tid))
	text := fmt.Sprintf("%s of %q:", name, strings.ReplaceAll(string(line), "\x00", " "))
	if link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.tid, int32(n.args[0]))); err == nil {
		text += " " + link
	}
	for at := range n.args[:4] {
		if word := memoryText(n, at); word != "" {
			text += fmt.Sprintf(" %q", word)
		}
	}
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.hit = text
}

// count counts a call and returns the fault for it, "" for none.
func (i *injector) count(at place) string {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.counts == nil {
		return ""
	}
	i.counts[at]++
	at.index = i.counts[at]
	if i.armed == nil || i.armed.place != at {
		return ""
	}
	fault := i.armed.fault
	i.armed = nil
	return fault
}

// faultsOf returns the errnos with which a call may fail under its name.
func faultsOf(c call, name string) []unix.Errno {
	if strings.HasSuffix(name, reading) {
		return descriptors()
	}
	return c.errnos
}

// total returns how many calls have been counted.
func (i *injector) total() int {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	sum := 0
	for _, n := range i.counts {
		sum += n
	}
	return sum
}
