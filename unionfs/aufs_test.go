package unionfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

// aufsUnmet are the differences that the documentation of AUFS lists.
func aufsUnmet() unionfstest.Unmet {
	return unionfstest.Unmet{
		"wh names are ordinary":              `aufs reserves names that begin with ".wh."`,
		"names of 255 bytes":                 "aufs puts a prefix before the name of a file that it hides, and takes names of 242 bytes",
		"rename of directories with content": "aufs returns EXDEV without the option dirren, and with it link(2) fails",
		"a file between two directories":     "aufs merges the directories above and below the file",
		"marks of overlay in layers":         "aufs refuses layers with overlay's marks",
		"times that an app sets":             "aufs keeps them in whole seconds",
	}
}

// The test runs the suite on a kernel with aufs. Elsewhere it checks that Probe
// and Mount report the kernel's lack.
func TestAUFSConforms(t *testing.T) {
	known, err := os.ReadFile("/proc/filesystems")
	must(t, err)
	scratch, layer := t.TempDir(), t.TempDir()
	notes, err := unionfs.AUFS{}.Probe(scratch, []string{layer})
	if !strings.Contains(string(known), "\taufs\n") {
		wantNoAUFS(t, err, scratch)
		return
	}
	must(t, err)
	t.Logf("notes: %q", notes)
	unionfstest.Run(t, unionfs.AUFS{}, aufsUnmetHere(t, notes))
	t.Run("stacked file systems", wantNoStackedAUFS)
}

// wantNoStackedAUFS checks that Probe refuses layers and scratch directories on
// overlay and on aufs itself, and leaves nothing there.
func wantNoStackedAUFS(t *testing.T) {
	r := copyRoot(t)
	must(t, unionfs.AUFS{}.Mount(t.Context(), r))
	for _, stacked := range []string{overlayAt(t, t.TempDir()), r.Target} {
		if is, err := unionfs.Stacked(stacked); err != nil || !is {
			t.Errorf("Stacked(%s) is %t, %v", stacked, is, err)
		}
		plain := t.TempDir()
		if _, err := (unionfs.AUFS{}).Probe(plain, []string{t.TempDir(), stacked}); err == nil {
			t.Errorf("layer on %s is taken", stacked)
		}
		if _, err := (unionfs.AUFS{}).Probe(stacked, []string{plain}); err == nil {
			t.Errorf("scratch directory on %s is taken", stacked)
		}
		for _, dir := range []string{plain, stacked} {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("Probe left %v in %s, %v", left, dir, err)
			}
		}
	}
}

// aufsUnmetHere adds to aufsUnmet what the kernel was not built for.
func aufsUnmetHere(t *testing.T, notes []string) unionfstest.Unmet {
	t.Helper()
	unmet := aufsUnmet()
	if len(notes) > 0 {
		for _, name := range []string{"attributes", "top directory", "top directory with a path whitelist", "writes"} {
			unmet[name] = notes[0]
		}
	}
	for _, n := range []int{128, 500} {
		if err := mountLayers(t, n); err != nil {
			if !strings.HasSuffix(err.Error(), "this kernel's aufs takes at most 126 layers") {
				t.Errorf("%d layers: %v", n, err)
			}
			unmet[fmt.Sprint(n, " layers")] = err.Error()
		}
	}
	return unmet
}

// mountLayers mounts a root of n layers and unmounts it.
func mountLayers(t *testing.T, n int) error {
	t.Helper()
	r := copyRoot(t)
	for i := range n - 1 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		must(t, os.Mkdir(dir, 0o755))
		r.Layers = append(r.Layers, unionfs.Layer{Dir: dir})
	}
	return errors.Join(unionfs.AUFS{}.Mount(t.Context(), r), unionfstest.Unmount(r))
}

// wantNoAUFS checks what AUFS does on a kernel without aufs.
func wantNoAUFS(t *testing.T, probed error, scratch string) {
	t.Helper()
	t.Log("this kernel does not have aufs: the suite did not run")
	want := "aufs in " + scratch + ": the kernel does not have aufs"
	if probed == nil || probed.Error() != want {
		t.Errorf("Probe: got %v, want %s", probed, want)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("Probe left %v, %v", left, err)
	}
	err := unionfs.AUFS{}.Mount(t.Context(), copyRoot(t))
	prefix, suffix := `aufs: mount 1 layers on `, ": the kernel does not have aufs"
	if err == nil || !strings.HasPrefix(err.Error(), prefix) || !strings.HasSuffix(err.Error(), suffix) {
		t.Errorf("Mount: got %v, want %s…%s", err, prefix, suffix)
	}
}

func layerNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	return names
}

func TestAUFSOptionsListTheBranches(t *testing.T) {
	tests := []struct {
		name     string
		layers   []string
		page     int
		want     []string
		branches []int
	}{
		{"one", layerNames(1), 4096, []string{"br:../upper=rw:0=ro,dirperm1"}, []int{2}},
		{"three", layerNames(3), 4096, []string{"br:../upper=rw:0=ro:1=ro:2=ro,dirperm1"}, []int{4}},
		{"exactly a page", layerNames(2), 34, []string{"br:../upper=rw:0=ro:1=ro,dirperm1"}, []int{3}},
		{"one byte less", layerNames(2), 33, []string{"br:../upper=rw:0=ro,dirperm1", "append:1=ro"}, []int{2, 1}},
		{
			"appended in order", layerNames(5), 34,
			[]string{"br:../upper=rw:0=ro:1=ro,dirperm1", "append:2=ro,append:3=ro", "append:4=ro"},
			[]int{3, 2, 1},
		},
		{
			"a name longer than a page",
			[]string{"0", strings.Repeat("n", 40), "2"},
			34,
			[]string{"br:../upper=rw:0=ro,dirperm1", "append:" + strings.Repeat("n", 40) + "=ro", "append:2=ro"},
			[]int{2, 1, 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options, branches := unionfs.AUFSOptions("../upper", tt.layers, tt.page)
			if diff := cmp.Diff(tt.want, options); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.branches, branches); diff != "" {
				t.Errorf("branches (-want +got):\n%s", diff)
			}
		})
	}
}

// More than 82 branches in a call corrupt the kernel's memory.
func TestAUFSOptionsComeInBatches(t *testing.T) {
	for _, n := range []int{1, 62, 63, 64, 82, 83, 126, 127, 128, 500, 5000} {
		all := layerNames(n)
		var added []string
		options, branches := unionfs.AUFSOptions("../upper", all, 4096)
		for i, text := range options {
			if len(text) > 4095 {
				t.Errorf("%d layers: call %d has %d bytes", n, i, len(text))
			}
			inCall := branchesOf(text, i == 0)
			if len(inCall) > 64 || len(inCall) != branches[i] {
				t.Errorf("%d layers: call %d adds %d branches, and says %d", n, i, len(inCall), branches[i])
			}
			added = append(added, inCall...)
		}
		if diff := cmp.Diff(append([]string{"../upper=rw"}, readOnly(all)...), added); diff != "" {
			t.Errorf("%d layers: branches (-want +got):\n%s", n, diff)
		}
		if most := (n+1)/64 + 1; len(options) > most {
			t.Errorf("%d layers need %d calls, want %d at most", n, len(options), most)
		}
	}
}

// branchesOf splits an option text into its branches.
func branchesOf(text string, first bool) []string {
	if first {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "br:"), ",dirperm1")
		return strings.Split(text, ":")
	}
	var branches []string
	for option := range strings.SplitSeq(text, ",") {
		branches = append(branches, strings.TrimPrefix(option, "append:"))
	}
	return branches
}

func readOnly(names []string) []string {
	branches := slices.Clone(names)
	for i := range branches {
		branches[i] += "=ro"
	}
	return branches
}

func TestAUFSMountErrorNamesTheCause(t *testing.T) {
	tests := []struct {
		name             string
		err              error
		attached, wanted int
		says             string
	}{
		{"no aufs", unix.ENODEV, 0, 2, "the kernel does not have aufs"},
		{"127 branches", unix.ENOSPC, 64, 128, "this kernel's aufs takes at most 126 layers"},
		{"127 branches, by one", unix.ENOSPC, 127, 128, "this kernel's aufs takes at most 126 layers"},
		{"511 branches", unix.ENOSPC, 448, 512, "this kernel's aufs takes at most 510 layers"},
		{"1,023 branches", unix.ENOSPC, 960, 1024, "this kernel's aufs takes at most 1022 layers"},
		{"a full disk", unix.ENOSPC, 0, 21, "branches 0 to 20: no space left on device"},
		{"a full disk, later", unix.ENOSPC, 128, 192, "branches 128 to 191: no space left on device"},
		{"another error", unix.EINVAL, 64, 128, "branches 64 to 127: invalid argument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := unionfs.AUFSMountError(tt.err, tt.attached, tt.wanted).Error(); got != tt.says {
				t.Errorf("got %s, want %s", got, tt.says)
			}
		})
	}
}

func TestJudgeXattrsTellsLackFromError(t *testing.T) {
	tests := []struct {
		err   error
		has   bool
		fails bool
	}{
		{nil, true, false},
		{unix.ENODATA, true, false},
		{unix.EOPNOTSUPP, false, false},
		{unix.EIO, false, true},
	}
	for _, tt := range tests {
		has, err := unionfs.JudgeXattrs("/root", tt.err)
		if has != tt.has || (err != nil) != tt.fails {
			t.Errorf("%v: %t, %v", tt.err, has, err)
		}
	}
}

// Without extended attributes, layers with file capabilities are refused, and others noted.
func TestFileCapabilitiesNeedExtendedAttributes(t *testing.T) {
	plain, capable := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(plain, "f"), nil, 0o755))
	must(t, unix.Lsetxattr(filepath.Join(plain, "f"), "trusted.t", []byte("t"), 0))
	notes, err := unionfs.JudgeNoXattrs([]string{plain})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "extended attributes") {
		t.Errorf("without capabilities: %q, %v", notes, err)
	}
	file := filepath.Join(capable, "bin", "ping")
	must(t, os.Mkdir(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, nil, 0o755))
	netBind := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	must(t, unix.Lsetxattr(file, "security.capability", []byte(netBind), 0))
	notes, err = unionfs.JudgeNoXattrs([]string{plain, capable})
	if err == nil || !strings.Contains(err.Error(), file+" has capabilities") || notes != nil {
		t.Errorf("with capabilities: %q, %v", notes, err)
	}
	_, err = unionfs.JudgeNoXattrs([]string{filepath.Join(plain, "missing")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with a layer that is missing: %v", err)
	}
}

// aufs would show what overlay's marks hide or move, so layers with marks are refused: a device or an opaque or
// redirected directory above another layer. A mark in the lowest layer does nothing.
func TestAUFSRefusesOverlaysMarks(t *testing.T) {
	const hides, redirect = " hides files of the layers below, which aufs would show", "trusted.overlay.redirect"
	plain, whiteout, opaque, redirected := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(plain, "etc/dir"), 0o755))
	must(t, os.WriteFile(filepath.Join(plain, "etc/secret"), nil, 0o644))
	must(t, unix.Mknod(filepath.Join(plain, "etc/null"), unix.S_IFCHR, int(unix.Mkdev(1, 3))))
	must(t, os.Mkdir(filepath.Join(whiteout, "etc"), 0o755))
	must(t, unix.Mknod(filepath.Join(whiteout, "etc/secret"), unix.S_IFCHR, 0))
	must(t, os.MkdirAll(filepath.Join(opaque, "etc/dir"), 0o755))
	must(t, unix.Lsetxattr(filepath.Join(opaque, "etc/dir"), "trusted.overlay.opaque", []byte("y"), 0))
	must(t, os.Mkdir(filepath.Join(redirected, "new"), 0o755))
	must(t, unix.Lsetxattr(filepath.Join(redirected, "new"), redirect, []byte("/etc"), 0))
	for _, tt := range []struct {
		name   string
		layers []string
		want   string // "" for no mark
	}{
		{"none", []string{plain, t.TempDir()}, ""},
		{"device", []string{t.TempDir(), whiteout, plain}, filepath.Join(whiteout, "etc/secret") + hides},
		{"opaque directory", []string{opaque, plain}, filepath.Join(opaque, "etc/dir") + hides},
		{"redirected directory", []string{redirected, plain}, redirected + ": /new: extended attribute " + redirect},
		{"in the lowest layer", []string{plain, whiteout}, ""},
	} {
		r := unionfs.Root{App: "a", Scratch: t.TempDir(), Target: t.TempDir()}
		for _, dir := range tt.layers {
			r.Layers = append(r.Layers, unionfs.Layer{Dir: dir})
		}
		err := unionfs.AUFS{}.Mount(t.Context(), r) // on a kernel without aufs always an error, but another one
		marked := func(err error) bool {
			return err != nil && (strings.Contains(err.Error(), hides) || strings.Contains(err.Error(), redirect))
		}
		if marked(err) != (tt.want != "") || marked(err) && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Mount: %v, want %q", tt.name, err, tt.want)
		}
		must(t, unionfstest.Unmount(r))
		if tt.want == "" {
			continue
		}
		// What Probe returns on a kernel with aufs, so that Select takes another driver.
		if err := unionfs.RefuseMarks(tt.layers); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
