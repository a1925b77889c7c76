package pods

import (
	"strings"
	"testing"
)

// The end of a pod whose stager the kernel has killed for want of memory is told as that.
func TestTheKillOfAStagerForItsMemoryIsTold(t *testing.T) {
	p := &Pod{Dir: t.TempDir(), State: State{Phase: Exited, Exit: &Exit{Code: 137, Signal: "SIGKILL", OOMKilled: true}}}
	if code, why := p.Outcome(); code == nil || *code != 137 || why != OOMKilled {
		t.Errorf("%v, %q", code, why)
	}
	if why := p.StagerFailed(); !strings.Contains(why, "memory was used up") {
		t.Error(why)
	}
}
