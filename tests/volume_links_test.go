package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/clause"
)

// linkedImage imports an image of busybox with a symbolic link in it.
func (b *machine) linkedImage(name, link, target string) imageRef {
	b.t.Helper()
	id := strings.TrimSpace(b.must("image", "import", filepath.Join(suite.images, "busybox.aci"), b.image(name, hostileManifest(name), func(root string) error {
		return errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(link)), 0o755), os.Symlink(target, filepath.Join(root, link)))
	})))
	b.layersAreNow()
	return imageRef{id[strings.LastIndexByte(id, '\n')+1:]}
}

// precious makes a folder of the host that must not change, and returns a function that checks it.
func (b *machine) precious() (dir string, check func(what string)) {
	dir = b.folder("precious", 0o777)
	b.write("precious/ptmx", "mine\n")
	look := func() string {
		entries, err := os.ReadDir(dir)
		text, readErr := os.ReadFile(filepath.Join(dir, "ptmx"))
		if err := errors.Join(err, readErr); err != nil {
			b.t.Fatal(err)
		}
		return fmt.Sprint(entries, string(text))
	}
	before := look()
	return dir, func(what string) {
		b.t.Helper()
		if after := look(); after != before {
			b.t.Errorf("%s changed the volume: %s, was %s", what, after, before)
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
			b := newMachine(t, ownStore())
			dir, unchanged := b.precious()
			target := filepath.Clean("/" + tt.target)
			app := shell("a", fmt.Sprintf("cat /data/ptmx; grep -q ' %s ' /proc/self/mounts && echo there; exec sleep 1000", target))
			app.Image = b.linkedImage("linked", tt.link, tt.target)
			doc := podOf(app).hostVolume("v", dir, "/../x/../../data/.")
			if tt.want != "" {
				b.refuse("p", doc, `mount target "/data"`, tt.want)
			} else {
				p := b.up("p", doc)
				p.sees("a", "mine\nthere\n")
				p.stop()
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
	b := newMachine(t)
	dir, unchanged := b.precious()
	app := shell("a", "mv /x /old && ln -s / /x && ln -s /dev /data && ls -d /x/data/null && echo linked")
	app.App.EventHandlers = []handlerDoc{{"post-stop", []string{"/bin/sh", "-c", "echo handled"}}}
	p := b.up("p", podOf(app).hostVolume("v", dir, "/x/data"))
	p.sees("a", "linked\n")
	p.exited("a")
	eventually(t, "a refusal of the handler's mount in the log", func() bool {
		return strings.Contains(p.stagerLog(), "nothing can be mounted over /dev")
	})
	p.stop()
	unchanged("post-stop")
}
