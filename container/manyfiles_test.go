package container

import (
	"os"
	"slices"
	"testing"
)

// A start whose descriptors reach init's own numbers, or pass them, disturbs no other.
func TestStartsWithManyDescriptorsDisturbNoOther(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, n := range []int{4094, 4095, 4096, 5000, 10000} { // and the plan; init's own begin at 4096 at most
		child, err := r.fork(&forked{files: slices.Repeat([]*os.File{null}, n)}, nil)
		if err == nil {
			<-child.Done() // the shim finds no plan
		} else if n == 4094 {
			t.Errorf("%d descriptors: %v", n, err)
		}
		if text, status := execOutput(t, c.(*container), rootCommand("sh", "-c", "echo here")); text != "here\n" || status != 0 {
			t.Fatalf("after %d descriptors a command says %q and ends with %#x, the start with %v", n, text, status, err)
		}
	}
	open, err := os.ReadDir(procPath(r.init.PID(), "fd"))
	if err != nil || len(open) > 6 {
		t.Errorf("init has the descriptors %v, %v", open, err)
	}
}
