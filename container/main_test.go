package container

import (
	"fmt"
	"io"
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
	for name, probe := range map[string]func(io.Writer) error{"stopped-probe": stoppedProbe, "stop-probe": stopProbe, "kept-probe": keptProbe, "copy-probe": copyProbe, "wait-probe": waitProbe, "fill-probe": func(io.Writer) error { return fillProgram() }} {
		if len(os.Args) > 1 && os.Args[1] == name {
			if err := probe(os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	containertest.Main(m)
}
