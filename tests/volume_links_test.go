package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// linkedImage imports an image of busybox with a symbolic link in it.
func linkedImage(b *harness.Machine, name, link, target string) harness.ImageRef {
	b.T.Helper()
	id := strings.TrimSpace(b.Must("image", "import", filepath.Join(suite.Images, "busybox.aci"), image(b, name, hostileManifest(name), func(root string) error {
		return errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(link)), 0o755), os.Symlink(target, filepath.Join(root, link)))
	})))
	b.LayersAreNow()
	return harness.ImageRef{ID: id[strings.LastIndexByte(id, '\n')+1:]}
}

// precious makes a folder of the host that must not change, and returns a function that checks it.
func precious(b *harness.Machine) (dir string, check func(what string)) {
	dir = b.Folder("precious", 0o777)
	b.Write("precious/ptmx", "mine\n")
	look := func() string {
		entries, err := os.ReadDir(dir)
		text, readErr := os.ReadFile(filepath.Join(dir, "ptmx"))
		if err := errors.Join(err, readErr); err != nil {
			b.T.Fatal(err)
		}
		return fmt.Sprint(entries, string(text))
	}
	before := look()
	return dir, func(what string) {
		b.T.Helper()
		if after := look(); after != before {
			b.T.Errorf("%s changed the volume: %s, was %s", what, after, before)
		}
	}
}

// Volumes are mounted at paths that are links in the image. The links do not lead out of the app's
// root: nothing is made in the volume or on the host. A link to a reserved target is refused.
func TestVolumeByALinkOfTheImageStaysInside(t *testing.T) {
	clause.Covers(t, "C-VOL-17")
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "not-there")
	for _, tt := range []struct{ link, target, want string }{
		{"data", "/dev", "nothing can be mounted over /dev"},
		{"data", "../../dev/", "nothing can be mounted over /dev"},
		{"data", "/dev/pts", "nothing can be mounted over /dev/pts"},
		{"data", "/proc/sys", "nothing can be mounted over /proc"},
		{"data", "/", "nothing can be mounted over /"},
		{"data", "/elsewhere", ""},
		{"data", outside, ""},
		{"data", "../../../../.." + outside, ""},
		{"data", "/dev/shm", ""},
	} {
		t.Run(strings.Trim(strings.ReplaceAll(tt.target, "/", "-"), "-"), func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t, harness.OwnStore())
			dir, unchanged := precious(b)
			target := filepath.Clean("/" + tt.target)
			app := suite.Shell("a", fmt.Sprintf("cat /data/ptmx; grep -q ' %s ' /proc/self/mounts && echo there; exec sleep 1000", target))
			app.Image = linkedImage(b, "linked", tt.link, tt.target)
			doc := harness.PodOf(app).HostVolume("v", dir, "/../x/../../data/.")
			if tt.want != "" {
				b.Refuse("p", doc, `mount target "/data"`, tt.want)
			} else {
				p := b.Up("p", doc)
				p.Sees("a", "mine\nthere\n")
				p.Stop()
			}
			if _, err := os.Lstat(outside); err == nil {
				t.Errorf("%s was made on the host", outside)
			}
			unchanged(tt.target)
		})
	}
}

// An app makes such a link at its volume's path, before its post-stop
// handler starts.
func TestVolumeByALinkOfTheAppStaysInside(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir, unchanged := precious(b)
	app := suite.Shell("a", "mv /x /old && ln -s / /x && ln -s /dev /data && ls -d /x/data/null && echo linked")
	app.App.EventHandlers = []harness.HandlerDoc{{Name: "post-stop", Exec: []string{"/bin/sh", "-c", "echo handled"}}}
	p := b.Up("p", harness.PodOf(app).HostVolume("v", dir, "/x/data"))
	p.Sees("a", "linked\n")
	p.Exited("a")
	harness.Eventually(t, "a refusal of the handler's mount in the log", func() bool {
		return strings.Contains(p.StagerLog(), "nothing can be mounted over /dev")
	})
	p.Stop()
	unchanged("post-stop")
}
