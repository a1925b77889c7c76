package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// folders makes folders with files, and returns the folders' paths.
func folders(t *testing.T, all ...map[string]string) (paths []string) {
	t.Helper()
	for _, files := range all {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, dir)
	}
	return append(paths, "/missing/folder")
}

const gpus = `
cdiVersion: 0.7.0
kind: vendor.com/gpu
containerEdits:
  env: [ALL=1]
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - {path: /dev/gpu0, hostPath: /dev/null, type: c, major: 1, minor: 3, fileMode: 0666, permissions: rw}
- name: "1"
  containerEdits:
    additionalGids: [44]
    mounts:
    - {hostPath: /usr/lib/a.so, containerPath: /lib/a.so, options: [ro, nosuid]}
`

func TestDevicesAreFoundInTheirOrder(t *testing.T) {
	mode := os.FileMode(0o666)
	all := Change{"vendor.com/gpu=1", specs.ContainerEdits{Env: []string{"ALL=1"}}}
	second := Change{"vendor.com/gpu=1", specs.ContainerEdits{
		AdditionalGIDs: []uint32{44},
		Mounts:         []*specs.Mount{{HostPath: "/usr/lib/a.so", ContainerPath: "/lib/a.so", Options: []string{"ro", "nosuid"}}},
	}}
	first := Change{"vendor.com/gpu=0", specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{
		Path: "/dev/gpu0", HostPath: "/dev/null", Type: "c", Major: 1, Minor: 3, FileMode: &mode, Permissions: "rw",
	}}}}
	nic := Change{"v/nic=a", specs.ContainerEdits{Env: []string{"NIC=later"}}}
	dirs := folders(t,
		map[string]string{
			"gpus.yaml": gpus, "note.txt": "{", "broken.json": "{",
			"nic.json": `{"cdiVersion": "0.3.0", "kind": "v/nic", "devices": [{"name": "a", "containerEdits": {"env": ["NIC=earlier"]}}]}`,
		},
		map[string]string{"nic.json": `{"cdiVersion": "0.3.0", "kind": "v/nic", "devices": [{"name": "a", "containerEdits": {"env": ["NIC=later"]}}]}`},
	)
	got, err := Find(dirs, []string{"vendor.com/gpu=1", "vendor.com/gpu=0", "v/nic=a", "vendor.com/gpu=1"})
	want := []Change{all, second, first, {"v/nic=a", specs.ContainerEdits{}}, nic}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if got, err := Find([]string{"/dev/null/none"}, nil); got != nil || err != nil {
		t.Errorf("%v, %v, want nothing for no device", got, err)
	}
}

// A device that is not found, or not certainly, is one line with the reason.
func TestDevicesAreNotFound(t *testing.T) {
	device := func(more string) string {
		return `{"cdiVersion": "0.6.0", "kind": "v/c", "devices": [{"name": "d", "containerEdits": {` + more + `}}]}`
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no file":        {nil, `CDI device "v/c=d": in no spec of /`},
		"other device":   {map[string]string{"a.yaml": gpus}, `CDI device "v/c=d": in no spec of /`},
		"two files":      {map[string]string{"a.json": device(""), "b.yaml": device("")}, "both in /"},
		"no YAML":        {map[string]string{"a.json": "{"}, "a.json: not a CDI spec: yaml:"},
		"empty":          {map[string]string{"a.json": ""}, "a.json: not a CDI spec: EOF"},
		"unknown key":    {map[string]string{"a.json": device(`"devicenodes": []`)}, "field devicenodes not found"},
		"later version":  {map[string]string{"a.json": strings.Replace(device(""), "0.6.0", "9.0.0", 1)}, `cdiVersion "9.0.0": invalid version`},
		"newer key":      {map[string]string{"a.json": device(`"additionalGids": [1]`)}, "must be at least v0.7.0"},
		"no vendor":      {map[string]string{"a.json": strings.Replace(device(""), "v/c", "c", 1)}, `kind "c": want VENDOR/CLASS`},
		"null":           {map[string]string{"a.json": device(`"deviceNodes": [null]`)}, "is null"},
		"device twice":   {map[string]string{"a.json": strings.Replace(device(""), "[", `[{"name": "d"},`, 1)}, `device "d": without a name, or twice`},
		"larger":         {map[string]string{"a.json": device("") + strings.Repeat(" ", maxSize)}, "larger than 1048576 bytes"},
		"many entries":   {manyFiles(), "more than 4096 entries"},
		"many aliases":   {map[string]string{"a.yaml": aliases()}, "excessive aliasing"},
		"another's kind": {map[string]string{"a.json": strings.Replace(device(""), "v/c", "v/c=d", 1)}, "want VENDOR/CLASS"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Find(folders(t, test.files), []string{"v/c=d"})
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, %v, want one line with %s", got, err, test.want)
			}
		})
	}
}

func manyFiles() map[string]string {
	all := make(map[string]string)
	for i := range maxEntries + 1 {
		all[strings.Repeat("x", i%60+1)+string(rune('a'+i/60))] = ""
	}
	return all
}

// aliases is a small text with a hundred devices of 100,000 variables each.
func aliases() string {
	text := "cdiVersion: 0.3.0\nkind: v/c\ncontainerEdits: {env: &all [" + strings.Repeat("A=1,", 100_000) + "]}\ndevices:\n"
	for i := range 100 {
		text += fmt.Sprintf("- {name: d%d, containerEdits: {env: *all}}\n", i)
	}
	return text
}

// A FIFO and a link to nothing in a folder are wrong files, which hold up nobody.
func TestOtherFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nothing", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	_, err := Find([]string{dir}, []string{"v/c=d"})
	want := `CDI device "v/c=d": in no spec of ` + dir + "; " + dir + "/fifo.json: not a file; " + dir + "/link.yaml: no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
