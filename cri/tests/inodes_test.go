package tests

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"kurma.io/stager/tests/dockerregistry"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The inodes of images are those that they take in the store: one for a file of several names.
func TestInodesOfImagesAreCounted(t *testing.T) {
	n := newNode(t)
	registry, _ := dockerregistry.Run(t)
	first, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	push(t, registry+"/first:1", first)
	push(t, registry+"/box:1", busybox(t, nil)) // with many names for busybox
	used := func() (said, there int) {
		t.Helper()
		r, err := n.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[uint64]bool)
		err = filepath.WalkDir(n.path("state/images"), func(path string, _ fs.DirEntry, err error) error {
			var stat unix.Stat_t
			err = errors.Join(err, unix.Lstat(path, &stat))
			seen[stat.Ino] = true
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return int(r.ImageFilesystems[0].InodesUsed.GetValue()), len(seen)
	}
	n.pull(registry + "/first:1")
	saidBefore, thereBefore := used()
	n.pull(registry + "/box:1")
	said, there := used()
	if said-saidBefore != there-thereBefore || said <= saidBefore {
		t.Errorf("%d more inodes are reported, there are %d more", said-saidBefore, there-thereBefore)
	}
}
