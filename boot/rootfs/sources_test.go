package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

func TestSourcesOfVolumesAreChecked(t *testing.T) {
	clause.Covers(t, "C-VOL-09")
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	devices, err := CheckSources([]plan.Source{{Volume: "d", Path: dir, ReadOnly: false}, {Volume: "f", Path: file, ReadOnly: true}, {Volume: "n", Path: "/dev/null", MayBeDevice: true}, {Volume: "z", Path: "/dev/zero", ReadOnly: true, MayBeDevice: true}, {Volume: "not given", Path: "/dev/full"}}, os.Lstat)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]spec.Device{{Type: 'c', Major: 1, Minor: 3, Access: "rw"}, {Type: 'c', Major: 1, Minor: 5, Access: "r"}}, devices); diff != "" {
		t.Error(diff)
	}
	_, err = CheckSources([]plan.Source{{Volume: "gone", Path: filepath.Join(dir, "gone"), ReadOnly: false}}, os.Lstat)
	checkRefused(t, err, `"gone"`, filepath.Join(dir, "gone"))
	_, err = CheckSources([]plan.Source{{Volume: "l", Path: link, ReadOnly: false}}, os.Lstat)
	checkRefused(t, err, `"l"`, link, "symbolic link")
}

func TestVolumesThatAreDevicesCanBeOpened(t *testing.T) {
	given := []spec.Mount{
		{Source: "/dev/null", NoSuid: true, NoDev: true},
		{Source: t.TempDir(), NoDev: true},
		{Source: "/no/such", NoDev: true},
		{Source: "/dev/full", NoDev: true},
	}
	sources := []plan.Source{{Path: "/dev/full"}}
	for _, m := range given[:3] {
		sources = append(sources, plan.Source{Path: m.Source, MayBeDevice: true})
	}
	mounts := OpenDevices(given, sources, os.Lstat)
	if !given[0].NoDev {
		t.Error("the given mounts are changed")
	}
	if mounts[0].NoDev || !mounts[0].NoSuid || !mounts[1].NoDev || !mounts[2].NoDev || !mounts[3].NoDev {
		t.Errorf("%+v", mounts)
	}
}

func checkRefused(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v, want one with %q", err, word)
		}
	}
}
