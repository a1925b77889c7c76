package container

import (
	"fmt"
	"os"
	"testing"

	"kurma.io/stager/container/containertest"
)

// The tests run as PID 1 of namespaces of their own, so that whatever they mount or start is gone with them. The
// pod's init is in another one below. They need root.
func TestMain(m *testing.M) {
	Init()
	if len(os.Args) > 1 && os.Args[1] == "listen-probe" {
		listenProbe(func(words ...any) { fmt.Fprintln(os.Stdout, words...) })
		return
	}
	for name, probe := range map[string]func() error{"fill-probe": fillProgram} {
		if len(os.Args) > 1 && os.Args[1] == name {
			if err := probe(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	containertest.Main(m)
}
