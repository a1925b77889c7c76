package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/launcher/images"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// A configuration of a few megabytes cannot have so many settings that it takes minutes to compare them.
func TestAConfigurationHasLimits(t *testing.T) {
	for _, n := range []int{maxSettings, maxSettings + 1} {
		labels, volumes := make(map[string]string), make(map[string]struct{})
		var env []string
		for i := range n {
			name := fmt.Sprintf("a%04d", i)
			env, labels[name], volumes["/"+name] = append(env, name), "", struct{}{}
		}
		for what, c := range map[string]v1.Config{"variables": {Env: env}, "labels": {Labels: labels}, "volumes": {Volumes: volumes}} {
			c.Cmd = []string{"/x"}
			_, err := convert(&v1.ConfigFile{Config: c}, "a", "", nil)
			if (err != nil) != (n > maxSettings) || err != nil && !strings.Contains(err.Error(), "has 1001 variables, labels or volumes, more than 1000") {
				t.Errorf("%d %s: %v", n, what, err)
			}
		}
	}
}

// An image may have equal volumes, and volumes inside others. The stager mounts only the outer ones.
func TestAVolumeInAnotherIsNoMountPoint(t *testing.T) {
	volumes := make(map[string]struct{})
	for _, target := range []string{"data", "/data/", "/data/logs", "/data/logs/old", "/data-x", "/data/../var", "/", "/lib/a"} {
		volumes[target] = struct{}{}
	}
	want := []mountPoint{{"data", "/data"}, {"data-x", "/data-x"}, {"lib-a", "/lib/a"}, {"var", "/var"}}
	if diff := cmp.Diff(want, mountPoints(volumes)); diff != "" {
		t.Error(diff)
	}
}

// The HEALTHCHECK of a container file becomes annotations, in which nothing is said of Docker's defaults.
func TestHealthChecksAreConverted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		check v1.HealthConfig
		shell []string
		want  string // annotations without their beginning
	}{
		{"none", v1.HealthConfig{}, nil, ""},
		{"base image's is not made", v1.HealthConfig{Test: []string{"NONE"}, Retries: 1}, nil, ""},
		{"words", v1.HealthConfig{Test: []string{"CMD", "/check", "a b"}}, nil, `cmd=["/check","a b"]`},
		{"shell", v1.HealthConfig{Test: []string{"CMD-SHELL", "a || b"}}, nil, `cmd=["/bin/sh","-c","a || b"]`},
		{"own shell", v1.HealthConfig{Test: []string{"CMD-SHELL", "a"}}, []string{"/bin/bash", "-ec"}, `cmd=["/bin/bash","-ec","a"]`},
		{
			"all",
			v1.HealthConfig{Test: []string{"CMD", "x"}, Interval: 90e9, Timeout: 5e8, StartPeriod: 1e9, Retries: 5},
			nil,
			`cmd=["x"] interval=1m30s retries=5 start-period=1s timeout=500ms`,
		},
		{"shortest interval", v1.HealthConfig{Test: []string{"CMD", "x"}, Interval: 1e6}, nil, `cmd=["x"] interval=1s`},
		{"several words", v1.HealthConfig{Test: []string{"CMD-SHELL", "echo $0", "x"}}, nil, `cmd=["/bin/sh","-c","echo $0","x"]`},
		{"nothing to execute", v1.HealthConfig{Test: []string{"CMD"}}, nil, ""},
		{"no program", v1.HealthConfig{Test: []string{"CMD", ""}}, nil, ""},
		{"unknown", v1.HealthConfig{Test: []string{"TCP", "80"}}, nil, ""},
		{"many retries", v1.HealthConfig{Test: []string{"CMD", "x"}, Retries: 1 << 40}, nil, `cmd=["x"] retries=2147483647`},
	} {
		text, err := convert(&v1.ConfigFile{Config: v1.Config{Cmd: []string{"/x"}, Healthcheck: &tt.check, Shell: tt.shell}}, "a", "", nil)
		var m imageManifest
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		var all []string
		for _, a := range m.Annotations {
			if name, ours := strings.CutPrefix(a.Name, "kurma.io/stager/health-"); ours {
				all = append(all, name+"="+a.Value)
			}
		}
		got := strings.Join(all, " ")
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

// What no program can ask for or no manifest may have does not keep an image from its use.
func TestAnOddConfigurationIsRead(t *testing.T) {
	a, err := appOf(v1.Config{Env: []string{"=x", "NONE", "A=1", "A=b=c", ""}, WorkingDir: "srv/../x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []images.NameValue{{Name: "NONE"}, {Name: "A", Value: "b=c"}}
	if diff := cmp.Diff(want, a.Environment); diff != "" || a.WorkingDirectory != "/x" {
		t.Error(diff, a.WorkingDirectory)
	}
}

// An image that says nothing to execute has an app all the same, for what its caller executes.
func TestAnImageWithoutAProgramKeepsItsSettings(t *testing.T) {
	text, err := convert(&v1.ConfigFile{Config: v1.Config{
		User: "7:8", WorkingDir: "/srv", Env: []string{"A=1", "BASH_FUNC_f%%=() { :; }", "a b=", "9=x", "a b=2"}, Volumes: map[string]struct{}{"/data": {}},
		Labels:       map[string]string{"kurma.io/stager/environment": "a label"},
		ExposedPorts: map[string]struct{}{"80": {}, "81-83/UDP": {}, "": {}, "x/tcp": {}, "0": {}, "5-4": {}, "70000/tcp": {}, "84/quic": {}},
	}}, "a", "", nil)
	var m imageManifest
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := &app{
		Exec: []string{}, User: "7", Group: "8", WorkingDirectory: "/srv", Environment: []images.NameValue{{Name: "A", Value: "1"}},
		MountPoints: []mountPoint{{"data", "/data"}}, Ports: []port{{"80-tcp", "tcp", 80, 1}, {"81-83-udp", "udp", 81, 3}},
	}
	if diff := cmp.Diff(want, m.App); diff != "" {
		t.Error(diff)
	}
	variables := images.NameValue{Name: "kurma.io/stager/environment", Value: `["BASH_FUNC_f%%=() { :; }","a b=2","9=x"]`}
	if got := slices.DeleteFunc(m.Annotations, func(a images.NameValue) bool { return a.Name != variables.Name }); !slices.Equal(got, []images.NameValue{variables}) {
		t.Errorf("annotations %v, want %v", got, variables)
	}
}

// An image's user is looked up where the app would look. A number needs no file, but a file that cannot be read may list
// it.
func TestUsersAreThoseOfTheImagesFiles(t *testing.T) {
	const users = "root:x:0:5::/:/bin/sh\napp:x:7:8::/:/bin/sh\n"
	layers := []*images.Image{{Dir: t.TempDir()}, {Dir: t.TempDir()}} // the lowest first
	lower, upper := layers[0].Rootfs(), layers[1].Rootfs()
	if err := errors.Join(os.MkdirAll(lower+"/nix", 0o755), os.MkdirAll(upper+"/etc", 0o755),
		os.WriteFile(lower+"/nix/passwd", []byte(users), 0o600), os.Symlink("/nix/passwd", upper+"/etc/passwd")); err != nil {
		t.Fatal(err)
	}
	check := func(user, want string) {
		t.Helper()
		a, err := appOf(v1.Config{User: user}, layers)
		if err != nil {
			t.Errorf("%q: %v", user, err)
		} else if got := a.User + ":" + a.Group; got != want {
			t.Errorf("%q: %s, want %s", user, got, want)
		}
	}
	check("app", "app:8")
	check("", "0:5")
	check("7", "7:8")
	check("007", "007:8")
	check("9", "9:0")
	if err := errors.Join(os.Remove(lower+"/nix/passwd"), unix.Mkfifo(lower+"/nix/passwd", 0o600)); err != nil {
		t.Fatal(err)
	}
	check("", "0:0")
	check("9", "9:0")
	refused := func(user, words string) {
		t.Helper()
		if _, err := appOf(v1.Config{User: user}, layers); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", user, err, words)
		}
	}
	check("app", "app:0")
	check("app:staff", "app:staff")
	refused("/etc/passwd", `user "/etc/passwd": not in the image's /etc/passwd`)
	for _, file := range []string{"passwd", "group"} {
		if err := errors.Join(os.RemoveAll(upper+"/etc"), os.Mkdir(upper+"/etc", 0o755),
			os.WriteFile(upper+"/etc/"+file, []byte(strings.Repeat(users, images.MaxAccounts/len(users)+1)), 0o600)); err != nil {
			t.Fatal(err)
		}
		refused("7", `user "7": read /etc/`+file+": larger than")
		refused("", "larger than")
		check("7:9", "7:9")
	}
}
