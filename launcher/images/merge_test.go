package images

import (
	"archive/tar"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/build"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// entriesOf reads a layer: NAME for a file, NAME/ for a folder, NAME/! for an opaque one, NAME? for a whiteout, NAME=OTHER for a link.
func entriesOf(layer, text string) (all []build.Entry) {
	for word := range strings.FieldsSeq(text) {
		e := build.Entry{Name: word, Type: tar.TypeReg}
		switch {
		case strings.HasSuffix(word, "/"):
			e.Name, e.Type = strings.TrimSuffix(word, "/"), tar.TypeDir
		case strings.HasSuffix(word, "/!"):
			e.Name, e.Type, e.Mode = strings.TrimSuffix(word, "/!"), tar.TypeDir, 1
		case strings.HasSuffix(word, "?"):
			e.Name, e.Type = strings.TrimSuffix(word, "?"), tar.TypeChar
		case strings.Contains(word, "="):
			e.Name, e.Link, _ = strings.Cut(word, "=")
			e.Type = tar.TypeLink
		}
		e.Source = layer + ":" + e.Name
		all = append(all, e)
	}
	return all
}

func TestMergedLayersAreAsAnOverlay(t *testing.T) {
	tests := []struct {
		name   string
		layers []string // the lowest first
		want   string   // NAME@LAYER, NAME=LINK
	}{
		{"union", []string{"a d/ d/x", "b d/ d/y"}, "a@0 b@1 d@1 d/x@0 d/y@1"},
		{"cover", []string{"a", "a"}, "a@1"},
		{"whiteout of a file", []string{"a b", "a?"}, "b@0"},
		{"whiteout of a folder", []string{"d/ d/x d/e/ d/e/y d-z", "d?"}, "d-z@0"},
		{"whiteout of nothing", []string{"a", "b?"}, "a@0"},
		{"opaque folder", []string{"d/ d/x", "d/! d/y"}, "d@1 d/y@1"},
		{"folders below an opaque folder", []string{"d/ d/e/ d/e/f/ d/e/f/x d/z de", "d/! d/e/ d/e/y", "d/e/ d/e/w"}, "d@1 d/e@2 d/e/w@2 d/e/y@1 de@0"},
		{"folder over file", []string{"a", "a/ a/x"}, "a@1 a/x@1"},
		{"file over folder", []string{"a/ a/x ab", "a"}, "a@1 ab@0"},
		{"there again", []string{"a d/ d/x", "a? d?", "a d/ d/y"}, "a@2 d@2 d/y@2"},
		{"link", []string{"a b=a"}, "a@0 b=a"},
		{"first name covered", []string{"a b=a c=a", "a"}, "a@1 b@0 c=b"},
		{"first name deleted", []string{"a b=a c=a", "a?"}, "b@0 c=b"},
		{"link to a file before it in bytes", []string{"d/ d/f d-x=d/f"}, "d@0 d/f@0 d-x=d/f"},
		{"link over a folder", []string{"d/ d/x", "a d=a"}, "a@1 d=a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]build.Entry
			for i, text := range tt.layers {
				layers = append(layers, entriesOf(string(rune('0'+i)), text))
			}
			var got []string
			for _, e := range merge(layers, func(e build.Entry) bool { return e.Mode == 1 }) {
				if e.Type == tar.TypeLink {
					got = append(got, e.Name+"="+e.Link)
				} else {
					got = append(got, e.Name+"@"+e.Source[:1])
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A hostile image replaces many folders by files.
func TestManyReplacedFoldersTakeLittle(t *testing.T) {
	var folders, files strings.Builder
	for i := range 25_000 {
		fmt.Fprintf(&folders, "d%d/ d%d/x ", i, i)
		fmt.Fprintf(&files, "d%d ", i)
	}
	layers := [][]build.Entry{entriesOf("0", folders.String()), entriesOf("1", files.String())}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := processorTime(t)
	merged := merge(layers, func(build.Entry) bool { return false })
	if took := processorTime(t) - begin; len(merged) != 25_000 || took > 5*time.Second {
		t.Errorf("%d entries after %v", len(merged), took)
	}
}

// processorTime returns what this thread has used: other processes have no part in it.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
