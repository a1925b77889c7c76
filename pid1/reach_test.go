package pid1

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Init's sockets have no names by which an app of the same network namespace could connect to one.
func TestInitsSocketsHaveNoNames(t *testing.T) {
	s := start(t, "wait", ownPID, "")
	s.says("up")
	dir := "/proc/" + s.line()
	links, err := os.ReadDir(dir + "/fd")
	text, readErr := os.ReadFile(dir + "/net/unix")
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	const inode, name = 6, 7 // columns (proc_net_unix(5))
	sockets := 0
	for _, link := range links {
		target, _ := os.Readlink(dir + "/fd/" + link.Name()) // all are init's until its end
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if target != fmt.Sprintf("socket:[%s]", fields[inode]) {
				continue
			}
			if sockets++; len(fields) > name {
				t.Errorf("init has the socket %q", fields[name])
			}
		}
	}
	if sockets != 2 { // the channel and the lifeline
		t.Errorf("init has %d sockets", sockets)
	}
	s.in.Close()
	s.ends(0)
}
