package container

import (
	"fmt"
	"os"
	"testing"

	"kurma.io/stager/container/containertest"
)

// The tests run as PID 1 of namespaces of their own, as the supervisor does, so
// that whatever they mount or start is gone with them. They need root.
func TestMain(m *testing.M) {
	Init()
	if len(os.Args) > 1 && os.Args[1] == "listen-probe" {
		listenProbe(func(words ...any) { fmt.Fprintln(os.Stdout, words...) })
		return
	}
	containertest.Main(m)
}
