package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kurma.io/stager/tests/harness"
)

const busybox = "kurma.io/stager/tests/busybox"

// A named volume gets what the image has at the target when the first pod uses it, and once: also if ten pods start at
// once. Pods share it, and a restart keeps it.
func TestNamedVolumesBeginAsTheImagesFolders(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	const list = "cd /etc; for f in . passwd group; do stat -c '%n %a %u:%g' $f; done"
	inShell := func(options []string, script string) string {
		t.Helper()
		args := append([]string{"run", "--rm", "--entrypoint", "/bin/sh"}, options...)
		return b.Must(append(args, busybox, "--", "-c", script)...)
	}
	want := inShell(nil, list)
	var starts sync.WaitGroup
	for n := range 10 {
		starts.Go(func() {
			r := b.Launcher("run", "--detach", "--name", fmt.Sprint("p", n), "--entrypoint", "/bin/sh", "--volume", "ten:/etc", busybox,
				"--", "-c", "echo $AC_APP_NAME >>/etc/started; exec sleep 1000")
			if r.Code != 0 || r.Stderr != "" { // such as that the volume hides the files of which it is a copy
				t.Errorf("%+v", r)
			}
		})
	}
	starts.Wait()
	b.Must("restart", "p0")
	count := func() string { return inShell([]string{"--volume", "ten:/x"}, "wc -l </x/started") }
	harness.Eventually(t, "each start", func() bool { return count() == "11\n" })
	b.Must("rm", "--force", "--all")
	if have := inShell([]string{"--volume", "ten:/etc"}, "rm /etc/started; "+list); have != want {
		t.Errorf("the volume has\n%s, want\n%s", have, want)
	}
	hidden := []string{"run", "--rm", "--entrypoint", "/bin/true", "--volume", b.Folder("other", 0o755) + ":/etc", busybox}
	if r := b.Launcher(hidden...); !strings.Contains(r.Stderr, "hides the image's files") {
		t.Errorf("a volume of the host over files: %+v", r)
	}
	inShell([]string{"--volume", "ten:/etc"}, "rm /etc/*")
	if have := inShell([]string{"--volume", "ten:/etc"}, "ls /etc"); have != "" {
		t.Errorf("a volume whose files an app has deleted has %q", have)
	}
}

// The volume of a manifest is exported, and imported into another state, with its owners.
func TestANamedVolumeMovesToAnotherState(t *testing.T) {
	t.Parallel()
	b, other := suite.NewMachine(t), suite.NewMachine(t)
	doc := harness.PodOf(suite.Shell("a", "cat /data/text 2>/dev/null || { echo kept >/data/text; chown 7:8 /data /data/text; chmod 700 /data; }; stat -c %u:%g:%a /data /data/text")).
		HostVolume("v", "moving", "/data")
	doc.Volumes[0].Kind = "named"
	path := b.Write("p.json", doc)
	b.Must("run", "--rm", path)
	archive := filepath.Join(t.TempDir(), "moving.tar")
	b.Must("volume", "export", "moving", archive)
	other.Must("volume", "import", "moving", archive)
	if out := other.Must("run", "--rm", path); out != "kept\n7:8:700\n7:8:644\n" {
		t.Errorf("the pod of the other state has %q", out)
	}
	for _, m := range []*harness.Machine{b, other} {
		m.Must("volume", "rm", "moving")
		if out := m.Must("volume", "list", "--json"); out != "" {
			t.Errorf("left: %s", out)
		}
	}
	if text, err := os.ReadFile(archive); err != nil || !strings.Contains(string(text), "kept") {
		t.Errorf("the archive: %v", err)
	}
}
