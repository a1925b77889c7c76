package tests

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mostMemory is how many bytes of memory the server may have taken at any time of an attack.
const mostMemory = 100 << 20

// withstands checks that the server answers, and has not taken too much memory. It is called during an attack.
func (n *node) withstands() {
	n.Helper()
	if _, err := n.ListContainerStats(n.Context(), &runtimeapi.ListContainerStatsRequest{}); err != nil {
		n.Errorf("the server does not answer: %v", err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.server.Process.Pid))
	if err != nil {
		n.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(text), "VmHWM:")
	peak, _, _ = strings.Cut(peak, "kB")
	kilobytes, err := strconv.Atoi(strings.TrimSpace(peak))
	if err != nil {
		n.Fatal(err)
	}
	n.Logf("the server has taken %d kB at most", kilobytes)
	if kilobytes<<10 > mostMemory {
		n.Errorf("the server has taken %d kB of memory", kilobytes)
	}
}

// Every user of the machine can connect to the address of streams.
func TestHostileStrangersOnTheStreamPort(t *testing.T) {
	p := newPod(t)
	id := p.startNew(p.script("sleep 1000"))
	newURL := func() string {
		r, err := p.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"echo", "hello"}, Stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetUrl()
	}
	port, err := url.Parse(newURL())
	if err != nil {
		t.Fatal(err)
	}
	var attackers sync.WaitGroup
	for i := range 20 {
		attackers.Go(func() { flood(t, port.Host, i) })
	}
	p.withstands()
	attackers.Wait()
	p.withstands()
	client := dial(t, newURL(), execProtocol)
	failure, out := client.open("error"), client.open("stdout")
	if got := client.read(out); got != "hello\n" {
		t.Errorf("a command of kubelet writes %q, and ends with %q", got, client.read(failure))
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.server.Process.Pid))
	if err != nil || len(files) > 200 {
		t.Errorf("the server has %d descriptors, %v", len(files), err)
	}
}

// flood opens connections, begins a long request on each, and keeps them until the test's end.
func flood(t *testing.T, host string, kind int) {
	text := "GET /exec/" + strings.Repeat("x", 1<<20)
	if kind%2 == 1 {
		var headers strings.Builder
		headers.WriteString("GET / HTTP/1.1\r\n")
		for i := range 1 << 17 { // which take many times their bytes in memory
			fmt.Fprintf(&headers, "%x:\n", i)
		}
		text = headers.String()
	}
	for range 100 {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Errorf("connect: %v", err)
			return
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		_, _ = c.Write([]byte(text)) // which the server may end
	}
}

// An app whose files are below more folders than the server's walk enters has at least these files, for kubelet's limit
// of its ephemeral storage.
func TestHostileFoldersHideNoFile(t *testing.T) {
	const size = 32 << 20
	p := newPod(t)
	id := p.startNew(p.script(`i=0; while [ $i -lt 1100 ]; do mkdir d && cd d || exit; i=$((i+1)); done
		dd if=/dev/urandom of=file bs=1048576 count=32 && sleep 1000`))
	surroundings.Eventually(t, "the files count", func() bool {
		r, err := p.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStats().GetWritableLayer().GetUsedBytes().GetValue() >= size
	})
	p.withstands()
}
