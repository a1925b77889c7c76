package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

func TestArgumentsDescribeTheMachine(t *testing.T) {
	c := machineConfig{Share: "/s", Memory: 512, CPUs: 3, Forward: []forward{{"tcp", 80}, {"udp", 53}}}
	args := c.arguments(accelerator{args: []string{"-accel", "x"}, kernel: " more"})
	for _, want := range [][]string{
		{"-netdev", "user,id=net,hostfwd=tcp::80-:80,hostfwd=udp::53-:53"},
		{"-m", "512M"},
		{"-smp", "3"},
		{"-accel", "x"},
		{"-no-reboot"},
		{"-append", "console=ttyS0 quiet loglevel=3 oops=panic panic=-1 more"},
		{"-object", "memory-backend-memfd,id=memory,share=on,size=512M"},
		{"-chardev", "socket,id=line,fd=3"},
		{"-chardev", "socket,id=share,fd=4"},
	} {
		if !strings.Contains("\n"+strings.Join(args, "\n")+"\n", "\n"+strings.Join(want, "\n")+"\n") {
			t.Errorf("%q is not in %q", want, args)
		}
	}
}

func limited(bytes ...int64) *plan.Pod {
	pod := new(plan.Pod)
	for _, b := range bytes {
		pod.Apps = append(pod.Apps, plan.App{Spec: spec.Spec{Resources: spec.Resources{MemoryLimit: b}}})
	}
	return pod
}

func TestMemoryFollowsTheIsolators(t *testing.T) {
	whole := limited(1<<30, 0)
	whole.Resources.MemoryLimit = 64 << 20
	for name, test := range map[string]struct {
		pod  *plan.Pod
		want int
	}{
		"no limit":          {limited(0), defaultMemory},
		"one without limit": {limited(1<<20, 0), defaultMemory},
		"the apps' sum":     {limited(100<<20, 28<<20), ownMemory + 128},
		"rounded up":        {limited(1<<20 + 1), ownMemory + 2},
		"the pod's":         {whole, ownMemory + 64},
	} {
		if got := memoryOf(test.pod); got != test.want {
			t.Errorf("%s: %d MiB, want %d", name, got, test.want)
		}
	}
}

// manifestOf is a manifest of one app with those ports.
func manifestOf(t *testing.T, ports string) *manifest.Manifest {
	t.Helper()
	id := "sha512-" + strings.Repeat("0", 128)
	image := `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b","app":{"exec":["/a"],"user":"0","group":"0","ports":` + ports + `}}`
	m, err := manifest.Read(strings.NewReader(`{"kurmaVersion":"0.1","pod":{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":"` + id + `"}}]},
		"images":{"` + id + `":` + image + `},"appImageOrder":{"a":["` + id + `"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPortsAreForwarded(t *testing.T) {
	m := manifestOf(t, `[{"name":"a","protocol":"tcp","port":80},{"name":"b","protocol":"udp","port":100,"count":3},{"name":"c","protocol":"tcp","port":80}]`)
	c, err := decideMachine(m, limited(0), 2)
	if err != nil {
		t.Fatal(err)
	}
	want := machineConfig{
		Share: guestRoot, Memory: defaultMemory, CPUs: 2,
		Forward: []forward{{"tcp", 80}, {"udp", 100}, {"udp", 101}, {"udp", 102}},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestPortsThatCannotBeForwardedAreRefused(t *testing.T) {
	for name, ports := range map[string]string{
		"a protocol": `[{"name":"a","protocol":"sctp","port":80}]`,
		"too many":   `[{"name":"a","protocol":"tcp","port":1000,"count":1000}]`,
	} {
		if c, err := decideMachine(manifestOf(t, ports), limited(0), 1); err == nil {
			t.Errorf("%s: %+v", name, c.Forward)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is more than a line", name, err)
		}
	}
}

func TestKVMIsTriedWhereTheProcessorHasIt(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	device := file("kvm", "")
	intel := file("intel", "processor\t: 0\nflags\t\t: fpu vmx\n")
	for name, test := range map[string]struct {
		device, cpuinfo string
		want            []string
	}{
		"Intel":               {device, intel, []string{"KVM", "emulation"}},
		"AMD":                 {device, file("amd", "flags : svm fpu\n"), []string{"KVM", "emulation"}},
		"a processor without": {device, file("old", "flags : fpu vmx_something\nvmx flags : x\n"), []string{"emulation"}},
		"no device":           {filepath.Join(dir, "none"), intel, []string{"emulation"}},
		"no list of features": {device, filepath.Join(dir, "none"), []string{"emulation"}},
	} {
		var got []string
		for _, a := range accelerators(test.device, test.cpuinfo) {
			got = append(got, a.name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWithPIDReplacesNothingElse(t *testing.T) {
	in := "{\n\t\"a\": {\n\t\t\"pid\": 17,\n\t\t\"exited\": false\n\t},\n\t\"pid\": {\"exited\":true,\"exitReason\":\"\\\"pid\\\":5\"}\n}\n"
	want := strings.Replace(in, "17", "4242", 1)
	if got := string(withPID([]byte(in), 4242)); got != want {
		t.Errorf("%s", got)
	}
}
