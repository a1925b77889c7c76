package jsonfile

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileIsReplacedOrStaysAsItWas(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "value")
	var got []int
	if err := Read(path, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := errors.Join(WriteSynced(path, []int{0}), os.WriteFile(path+".new", []byte("what a killed process has left"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]int{{1, 2}, {3}} {
		if err := errors.Join(Write(path, want), Read(path, &got)); err != nil || len(got) != len(want) || got[0] != want[0] {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	if err := Write(path, math.NaN()); err == nil {
		t.Error("a value that is not JSON is written")
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "folder"), nil); err == nil {
		t.Error("a folder is replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, &got); err == nil || !strings.HasPrefix(err.Error(), "value: ") {
		t.Errorf("a damaged file: %v", err)
	}
}
