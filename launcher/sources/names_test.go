package sources

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"kurma.io/stager/tests/surroundings"
)

// saved is an archive of docker save of an image for each word, which has the names between its commas.
func saved(t *testing.T, words ...string) string {
	t.Helper()
	images := make(map[name.Tag]v1.Image)
	for i, word := range words {
		image, err := mutate.Config(empty.Image, v1.Config{Cmd: []string{fmt.Sprint("/", i)}})
		for text := range strings.SplitSeq(word, ",") {
			tag, tagErr := name.NewTag(text)
			err = errors.Join(err, tagErr)
			images[tag] = image
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "saved.tar")
	if err := tarball.MultiWriteToFile(path, images); err != nil {
		t.Fatal(err)
	}
	return path
}

// namedLayout is a layout with an entry for each word COMMAND|FIELD, where the field names the image.
func namedLayout(t *testing.T, words ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "of")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, word := range words {
		command, annotations, _ := strings.Cut(word, "|")
		config := writeBlob(t, dir, configType, fmt.Sprintf(`{"rootfs": {"type": "layers"}, "config": {"Cmd": [%q]}}`, command))
		entry := strings.TrimSuffix(writeBlob(t, dir, manifestType, manifestOf(config)), "}")
		list = append(list, entry+fmt.Sprintf(`, "annotations": {%s}}`, annotations))
	}
	writeIndex(t, dir, strings.Join(list, ", "))
	return dir
}

// Each name that an archive or a layout has for an image is an image of the store. What has several images can be
// imported, and cannot be what one pod runs.
func TestEachNameOfAnImageIsKept(t *testing.T) {
	surroundings.Root(t)
	tag := func(name string) string { return fmt.Sprintf(`"org.opencontainers.image.ref.name": %q`, name) }
	whole := func(name string) string { return fmt.Sprintf(`"io.containerd.image.name": %q`, name) }
	for _, tt := range []struct {
		what, source string
		want         string // names and their commands
		several      bool
	}{
		{"docker save", saved(t, "example.com/one:1"), "example.com/one:1=/0", false},
		{"two tags", saved(t, "example.com/one:1,example.com/two:2"), "example.com/one:1=/0 example.com/two:2=/0", false},
		{"two images", saved(t, "example.com/one:1", "example.com/two:2"), "example.com/one:1=/0 example.com/two:2=/1", true},
		{"a layout", namedLayout(t, "/0|"), "of:=/0", false},
		{"a layout with two tags", namedLayout(t, "/0|"+tag("1"), "/0|"+tag("2")), "of:1=/0 of:2=/0", false},
		{"a layout with a tag and without", namedLayout(t, "/0|", "/0|"+tag("2")), "of:2=/0", false},
		{
			"a layout with whole names", namedLayout(t, "/0|"+tag("example.com/a:1"), "/0|"+whole("example.com/b:2")+","+tag("2")),
			"example.com/a:1=/0 example.com/b:2=/0", false,
		},
		{"a layout with two images", namedLayout(t, "/0|"+tag("1"), "/1|"+tag("2")), "of:1=/0 of:2=/1", true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			f := newFetcher(t)
			all, err := f.ImportAll(t.Context(), tt.source)
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]string)
			for _, image := range all {
				got[image.Manifest.Name+":"+image.Manifest.Version()] = image.Manifest.App.Exec[0]
			}
			want := make(map[string]string)
			for word := range strings.FieldsSeq(tt.want) {
				name, command, _ := strings.Cut(word, "=")
				want[name] = command
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if known := f.Known(tt.source) != nil; known == tt.several {
				t.Errorf("the source is known: %v", known)
			}
			fresh := newFetcher(t)
			_, err = fresh.Import(t.Context(), tt.source)
			if isRefused := err != nil && strings.Contains(err.Error(), "2 images; import the file"); isRefused != tt.several || !tt.several && err != nil {
				t.Errorf("as one image: %v", err)
			}
			if left, err := fresh.Store.List(); err != nil || tt.several && len(left) > 0 {
				t.Errorf("%d images, %v", len(left), err)
			}
			fresh.checkCache(t)
		})
	}
}

// The working directory of an image is there, as Docker makes it, unless the image has something in its place.
func TestTheWorkingDirectoryIsMade(t *testing.T) {
	for dir, want := range map[string]string{"": "", "/": "", "/d": "", "/new": "new", "/d/e/f": "d/e/f", "/link/x": "d/x", "/link": "", "/file/x": "", "/a/../b": "b", "new": "new", "../d/e/f": "d/e/f", "/loop/x": "", "/far/x": ""} {
		names := []string{"d/", "file", "link>d", "loop>loop", "far>l0"}
		for i := range 300 { // more than are followed
			names = append(names, fmt.Sprintf("l%d>l%d", i, i+1))
		}
		layer, diffID := layerOf(t, names...)
		layout := t.TempDir()
		of := writeBlob(t, layout, "application/vnd.oci.image.layer.v1.tar", string(layer))
		config := writeBlob(t, layout, configType, fmt.Sprintf(`{"rootfs": {"type": "layers", "diff_ids": [%q]}, "config": {"Cmd": ["/x"], "WorkingDir": %q}}`, diffID, dir))
		writeIndex(t, layout, writeBlob(t, layout, manifestType, fmt.Sprintf(`{"schemaVersion": 2, "config": %s, "layers": [%s]}`, config, of)))
		f := newFetcher(t)
		image, err := f.Import(t.Context(), layout)
		if err != nil {
			t.Fatal(err)
		}
		var made []string
		if err := filepath.WalkDir(image.Rootfs(), func(path string, entry os.DirEntry, err error) error {
			if name, _ := filepath.Rel(image.Rootfs(), path); name != "." {
				made = append(made, name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(made) > 0 {
			got = made[len(made)-1]
		}
		if got != want {
			t.Errorf("%q: made %q, want %q", dir, made, want)
		}
		if want == "d/e/f" {
			if info, err := os.Stat(filepath.Join(image.Rootfs(), "d")); err != nil || info.Mode().Perm() != 0o750 {
				t.Errorf("the folder of the layer below has mode %v, %v", info.Mode(), err)
			}
		}
	}
}

// A few megabytes of names are not half a million images.
func TestTheNamesOfAnArchiveHaveALimit(t *testing.T) {
	tags := make([]string, maxNames+1)
	var entries []string
	for i := range tags {
		tags[i] = fmt.Sprintf("app:%d", i)
		entries = append(entries, fmt.Sprintf(`/0|"org.opencontainers.image.ref.name": "%d"`, i))
	}
	for source, words := range map[string]string{
		saved(t, strings.Join(tags, ",")): "more than 1000 names", namedLayout(t, entries...): "1001 images, more than 1000",
	} {
		if _, err := newFetcher(t).ImportAll(t.Context(), source); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}
