package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// An app that fills /dev/shm with bytes, or with files, takes nothing from the starts of its
// neighbours.
func TestFullSharedMemoryHarmsNoNeighbour(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]string{
		"bytes": "dd if=/dev/zero of=/dev/shm/big bs=64k count=1024 2>/dev/null",
		"files": "i=0; while [ $i -lt 4096 ]; do : >/dev/shm/$i || exit 1; i=$((i+1)); done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t, harness.StagerConfig(`{"shmSize": "1Mi", "restart": "always"}`))
			dir := b.Folder("sync", 0o777)
			full, runs := b.SignalPipe(filepath.Join(dir, "full")), b.SignalPipe(filepath.Join(dir, "runs"))
			filler := fmt.Sprintf("(%s); echo $? >/sync/status; echo >/sync/full; exec sleep 1000", fill)
			p := b.Up("p", harness.PodOf(suite.Shell("filler", filler), suite.Shell("neighbour", "echo >/sync/runs; until rm /sync/again 2>/dev/null; do usleep 10000; done")).HostVolume("sync", dir, "/sync"))
			full.Line()
			runs.Line()
			if status, err := os.ReadFile(filepath.Join(dir, "status")); string(status) != "1\n" {
				t.Errorf("filling /dev/shm ended with %q, %v, want 1", status, err)
			}
			b.Write("sync/again", "")
			runs.Line() // it has been started again
			if r := p.Exec("neighbour", "/bin/df", "-k", "/dev/shm"); !strings.Contains(r.Stdout, " 1024 ") {
				t.Errorf("/dev/shm: %+v", r)
			}
			p.Stop()
		})
	}
}
