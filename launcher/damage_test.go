package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kurma.io/stager/names"

	"golang.org/x/sys/unix"
)

// damage empties a file, as a power loss does.
func (h *host) damage(path ...string) {
	h.t.Helper()
	if err := os.Truncate(filepath.Join(append([]string{h.dir}, path...)...), 0); err != nil {
		h.t.Fatal(err)
	}
}

const unreadable = "unexpected end of JSON input"

func TestADamagedImageStopsNoOther(t *testing.T) {
	for _, file := range []string{"record.json", "manifest"} {
		t.Run(file, func(t *testing.T) {
			h := newHost(t)
			base := h.image("base.aci", baseManifest)
			id := strings.TrimSpace(h.run("image", "import", base))
			h.damage("images", id, file)
			if out := h.run("image", "list"); strings.Count(out, "\n") != 4 || !strings.Contains(out, id[7:19]) || !strings.HasSuffix(out, "  damaged\n") {
				t.Errorf("image list:\n%s", out)
			}
			all := jsonLines[struct{ ID, Name, Damaged string }](t, h.run("image", "list", "--json"))
			if len(all) != 3 || all[2].ID != id || all[2].Name != "" || !strings.Contains(all[2].Damaged, unreadable) {
				t.Errorf("image list --json: %+v", all)
			}
			h.run("run", "--detach", "--name", "p", "example.com/one")
			h.run("rm", "--force", "p")
			h.refuse(1, "image "+id+" is damaged, remove it and import it again: ", "run", id)
			h.refuse(1, `no such image: "example.com/base"; a damaged image may have the name`, "run", "example.com/base")
			h.refuse(1, "is damaged, remove it", "image", "import", base)
			ref := id
			if file == "manifest" {
				ref = id[:20]
			}
			h.run("image", "rm", ref)
			h.refuse(1, `no such image: "`+ref[:15], "run", ref[:15])
			if all := h.listed(); len(all) != 2 {
				t.Errorf("image list --json after image rm: %+v", all)
			}
		})
	}
}

// Pods without networks need no folder of networks.
func TestADamagedNetworksFolderStopsNoPodWithoutNetworks(t *testing.T) {
	h := newHost(t)
	h.configure(`"networksDirectory":"keys.asc/networks"`) // below a file
	h.run("run", "--detach", "--name", "p", "example.com/one")
	if all := h.ps(); len(all) != 1 || all[0].State != "running" {
		t.Errorf("ps: %+v", all)
	}
	h.run("logs", "p")
	h.run("stop", "p")
	h.run("rm", "p")
}

func TestAnImageWithoutItsManifestIsListedAsDamaged(t *testing.T) {
	h := newHost(t)
	id := h.listed()["example.com/one"].ID
	if err := os.Remove(filepath.Join(h.dir, "images", id, "manifest")); err != nil {
		t.Fatal(err)
	}
	if out := h.run("image", "list", "--no-trunc"); !strings.Contains(out, "damaged: open ") {
		t.Errorf("image list:\n%s", out)
	}
	h.run("image", "rm", id)
}

func TestADamagedPodStopsNoOther(t *testing.T) {
	for _, tt := range []struct {
		file, content, why string
		name               string // what is known of it
	}{
		{"state.json", "", "state.json: " + unreadable, "bad"},
		{"plan.json", "", "plan.json: " + unreadable, ""},
		{"plan.json", "{}", `plan.json belongs to pod ""`, ""},
	} {
		t.Run(tt.file+tt.content, func(t *testing.T) {
			h := newHost(t)
			bad := strings.TrimSpace(h.run("run", "--detach", "--name", "bad", "example.com/one"))
			h.killMonitor(bad)
			h.run("run", "--detach", "--name", "good", "example.com/one")
			if err := os.WriteFile(filepath.Join(h.dir, "pods", bad, tt.file), []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := h.run("ps", "--no-trunc"); strings.Count(out, "\n") != 3 || !strings.Contains(out, bad) || !strings.Contains(out, tt.why) {
				t.Errorf("ps:\n%s", out)
			}
			all := jsonLines[struct{ UUID, Name, State, Damaged string }](t, h.run("ps", "--json"))
			if len(all) != 2 || all[0].State != "running" || all[1].UUID != bad || all[1].State != "damaged" || all[1].Name != tt.name || all[1].Damaged != tt.why {
				t.Errorf("ps --json: %+v", all)
			}
			h.run("status", "good")
			for _, command := range []string{"status", "logs", "attach", "stop"} {
				if r := h.try(command, bad[:13]); r.code != 1 || r.stderr != "launcher: pod "+bad+" is damaged, rm --force ends and deletes it: "+tt.why+"\n" {
					t.Errorf("%s: %+v", command, r)
				}
			}
			h.run("rm", "--force", "good")
			h.run("run", "--detach", "--name", "bad", "example.com/one") // its name is free
			if out := h.run("gc"); out != "pod "+bad+"\n" {
				t.Errorf("gc: %q", out)
			}
			h.run("rm", "--force", "bad")
		})
	}
}

// rm --force ends a pod that runs on with damaged files, and deletes one that has ended. No other pod is touched, also not
// the one that its plan belongs to.
func TestRmForceEndsADamagedPod(t *testing.T) {
	for _, file := range []string{"state.json", "plan.json", "another's plan.json"} {
		for _, alive := range []bool{true, false} {
			t.Run(fmt.Sprint(file, alive), func(t *testing.T) {
				h := newHost(t)
				good := strings.TrimSpace(h.run("run", "--detach", "--name", "good", "example.com/one"))
				bad := strings.TrimSpace(h.run("run", "--detach", "--name", "bad", "example.com/one"))
				if !alive {
					h.killMonitor(bad)
				}
				path := filepath.Join(h.dir, "pods", bad, filepath.Base(strings.TrimPrefix(file, "another's ")))
				content := []byte{}
				if strings.HasPrefix(file, "another's") {
					content = must(os.ReadFile(filepath.Join(h.dir, "pods", good, "plan.json")))
				}
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				if alive {
					if out := h.run("gc"); out != "" {
						t.Errorf("gc of a pod that runs: %q", out)
					}
				}
				if r := h.try("rm", bad); r.code != 1 || !strings.Contains(r.stderr, "is damaged, rm --force ends and deletes it: ") {
					t.Errorf("rm: %+v", r)
				}
				if r := h.try("rm", "--force", bad); r != (result{}) {
					t.Errorf("rm --force: %+v", r)
				}
				if all := h.ps(); len(all) != 1 || all[0].UUID != good || all[0].State != "running" {
					t.Errorf("ps: %+v", all)
				}
				h.run("status", "good")
				h.run("rm", "--force", "good")
				h.checkNoPods()
			})
		}
	}
}

// What gc does about a damaged pod is not what the pod's files say of others.
func TestGCOfADamagedPodDoesNoHarm(t *testing.T) {
	h := newHost(t)
	bad := strings.TrimSpace(h.run("run", "--detach", "--name", "bad", "example.com/one"))
	h.killMonitor(bad)
	good := strings.TrimSpace(h.run("run", "--detach", "--name", "good", "example.com/one"))
	defer h.run("rm", "--force", "good")
	plan := must(os.ReadFile(filepath.Join(h.dir, "pods", good, "plan.json")))
	if err := os.WriteFile(filepath.Join(h.dir, "pods", bad, "plan.json"), plan, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := h.run("gc"); out != "pod "+bad+"\n" {
		t.Errorf("gc: %q", out)
	}
	if all := h.ps(); len(all) != 1 || all[0].State != "running" {
		t.Errorf("ps: %+v", all)
	}
	h.run("status", "good")
}

// The document of the apps' last states comes from the stager's image: nothing in it, null for one, ends the launcher.
func TestLastStatesOfAnotherStagerAreTakenAsTheyAre(t *testing.T) {
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	h.run("stop", "p")
	logs := filepath.Join(h.dir, "pods", uuid, "logs")
	for _, content := range []string{"null", "{}", `{"another": null}`, `{"one": null}`, "[]", "{"} {
		if err := errors.Join(os.MkdirAll(logs, 0o700), os.WriteFile(filepath.Join(logs, names.LastStatus), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		if out := h.run("status", "p"); strings.Count(out, "exited") != 1 {
			t.Errorf("status with %s: %s", content, out)
		}
	}
}

// Pods whose disk is read-only, as after an error of it, are not damaged: commands that write nothing go on, and stop ends the pod and
// says what is left to gc.
func TestPodsOnAReadOnlyDiskAreNotDamaged(t *testing.T) {
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	dir := filepath.Join(h.dir, "pods")
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	unmount := sync.OnceValue(func() error { return unix.Unmount(dir, unix.MNT_DETACH) })
	defer unmount()
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if all := h.ps(); len(all) != 1 || all[0].UUID != uuid || all[0].State != "running" {
		t.Errorf("ps: %+v", all)
	}
	h.run("status", "p")
	h.run("inspect", "p")
	stager := h.ps()[0].PID
	if r := h.try("stop", "p"); r.code != 1 || !strings.Contains(r.stderr, "read-only file system") {
		t.Errorf("stop: %+v", r)
	}
	if err := unix.Kill(stager, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the stager of a pod that was stopped: %v", err)
	}
	if err := unmount(); err != nil {
		t.Error(err)
	}
	if out := h.run("gc"); strings.TrimSpace(out) != "pod "+uuid {
		t.Errorf("gc: %s", out)
	}
}

// stop --all says which pods it cannot stop, and stops the others.
func TestStopAllNamesDamagedPodsThatRun(t *testing.T) {
	h := newHost(t)
	bad := strings.TrimSpace(h.run("run", "--detach", "--name", "bad", "example.com/one"))
	dead := strings.TrimSpace(h.run("run", "--detach", "--name", "dead", "example.com/one"))
	h.killMonitor(dead)
	h.run("run", "--detach", "--name", "good", "example.com/one")
	h.damage("pods", bad, "state.json")
	h.damage("pods", dead, "state.json")
	if r := h.try("stop", "--all"); r.code != 1 || r.stderr != "launcher: pod "+bad+" is damaged, rm --force ends and deletes it: state.json: "+unreadable+"\n" {
		t.Errorf("stop --all: %+v", r)
	}
	if all := h.ps(); len(all) != 3 || all[0].Name != "good" || all[0].State != "exited" {
		t.Errorf("ps: %+v", all)
	}
	h.run("rm", "--force", "good")
	h.run("rm", "--force", bad)
	h.run("rm", "--force", dead)
}
