package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/container"
	"kurma.io/stager/manifest"
)

const blockBandwidth = "resource/block-bandwidth"

func rate(limit int) string { return fmt.Sprintf(`{"default": true, "limit": "%d"}`, limit) }

func TestClause_C_BLK_01_AsTheMachineCan(t *testing.T) {
	tests := []struct {
		name           string
		limits         blockLimits
		pod, app       []manifest.Isolator
		want           container.Resources // the app's
		podFate, fates []fate
	}{
		{"v2", fullBlockLimits, nil, listed(blockBandwidth, rate(5)), container.Resources{BlockBandwidth: 5}, nil, []fate{enforced}},
		{"v1", directBlockLimits, nil, listed(blockBandwidth, rate(5)), container.Resources{BlockBandwidth: 5}, nil, []fate{modified}},
		{"none", noBlockLimits, listed(blockBandwidth, rate(5)), listed(blockBandwidth, rate(5)), container.Resources{}, []fate{ignored}, []fate{ignored}},
		{"the pod's bounds the app's", fullBlockLimits, listed(blockBandwidth, rate(5)), listed(blockBandwidth, rate(6)), container.Resources{BlockBandwidth: 5}, []fate{enforced}, []fate{modified}},
		{"the app's below the pod's", fullBlockLimits, listed(blockBandwidth, rate(6)), listed(blockBandwidth, rate(5)), container.Resources{BlockBandwidth: 5}, []fate{enforced}, []fate{enforced}},
		{"the pod's is an app's that has none", directBlockLimits, listed(blockBandwidth, rate(5)), nil, container.Resources{BlockBandwidth: 5}, []fate{modified}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := machine{BlockLimits: test.limits}
			pod, err := isolatePod(defaultConfig(), m, test.pod)
			if err != nil {
				t.Fatal(err)
			}
			checkFates(t, test.podFate, pod.Fates)
			got := settled(t, m, pod, test.app)
			checkFates(t, test.fates, got.Fates)
			if diff := cmp.Diff(test.want, got.Resources); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBlockLimitsAt(t *testing.T) {
	for name, want := range map[string]blockLimits{
		"blkio/blkio.throttle.read_bps_device": directBlockLimits, "cgroup.controllers": fullBlockLimits, "other": noBlockLimits,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("cpu io memory\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := blockLimitsAt(dir); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestControlledAt(t *testing.T) {
	for path, want := range map[string]bool{
		"cpu,cpuacct/cpu.shares": true, "memory/cpu.shares": true, "cpu.shares": false, "cpu/cpu.stat": false,
		"cgroup.controllers": true, "unified/cgroup.controllers": false,
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte("cpuset cpu io\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := controlledAt(dir, "cpu.shares", "cpu"); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestClause_C_NBW_01_PodOrOnlyApp(t *testing.T) {
	isolator := func(limit int) []manifest.Isolator { return listed("resource/network-bandwidth", rate(limit)) }
	tests := []struct {
		name string
		pod  podIsolators
		list []manifest.Isolator
		want uint64
		fate fate
	}{
		{"only app", podIsolators{OneApp: true}, isolator(5000), 5000, enforced},
		{"one of several", podIsolators{}, isolator(5000), 0, ignored},
		{"host's network", podIsolators{OneApp: true, Namespaces: namespaces{hostNet: true}}, isolator(5000), 0, ignored},
		{"less than the kernel takes", podIsolators{OneApp: true}, isolator(5), minNetworkRate, modified},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := settled(t, able, test.pod, test.list)
			checkFates(t, []fate{test.fate}, got.Fates)
			if got.NetworkBandwidth != test.want {
				t.Errorf("limit %d, want %d", got.NetworkBandwidth, test.want)
			}
		})
	}
	pod, err := isolatePod(defaultConfig(), able, isolator(5000))
	if err != nil || pod.NetworkBandwidth != 5000 {
		t.Errorf("pod's limit %d, %v", pod.NetworkBandwidth, err)
	}
	checkFates(t, []fate{enforced}, pod.Fates)
	pod, err = isolatePod(defaultConfig(), able, append(listed("os/linux/namespaces", `{"net": "host"}`), isolator(5000)...))
	if err != nil || pod.NetworkBandwidth != 0 {
		t.Errorf("limit %d of the host's network, %v", pod.NetworkBandwidth, err)
	}
}

// isolatorList is a manifest's isolators from NAME VALUE pairs.
func isolatorList(pairs ...string) []map[string]any {
	var list []map[string]any
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]any{"name": pairs[i], "value": json.RawMessage(pairs[i+1])})
	}
	return list
}

// Two apps that take 48 MiB each do not fit into a pod of 64, though each of
// them may have 256; one without the other fits. What they take stays in the
// pod's /dev/shm.
func TestClause_C_ISO_01_PodBoundsTheSum(t *testing.T) {
	app := func(name, size string) testApp {
		fill := []string{"/bin/dd", "if=/dev/zero", "of=/dev/shm/" + name, "bs=1M", "count=" + size}
		return testApp{Name: name, App: map[string]any{
			"exec": fill, "isolators": isolatorList("resource/memory", `{"limit": "256Mi"}`),
		}}
	}
	pod := withPod("isolators", isolatorList("resource/memory", `{"limit": "64Mi"}`))
	p := launch(t, []testApp{app("a", "48")}, pod, withConfig("exitPolicy", "all"))
	if code := p.exits(); code != 0 {
		t.Errorf("alone: exit code %d\n%s", code, p.messages())
	}
	p = launch(t, []testApp{app("a", "48"), app("b", "48")}, pod, withConfig("exitPolicy", "failure"))
	if code := p.exits(); code != 137 || !strings.Contains(p.messages(), "reason=oom-killed") {
		t.Errorf("exit code %d\n%s", code, p.messages())
	}
}

func TestClause_C_ISO_01_PodBoundsTheApp(t *testing.T) {
	app := testApp{Name: "a", App: map[string]any{
		"exec":      []string{"/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"},
		"isolators": isolatorList("resource/memory", `{"limit": "256Mi"}`),
	}}
	p := launch(t, []testApp{app}, withPod("isolators", isolatorList("resource/memory", `{"limit": "64Mi"}`)), withConfig("exitPolicy", "all"))
	if code := p.exits(); code != 137 || !strings.Contains(p.messages(), "reason=oom-killed") || !strings.Contains(p.messages(), "fate=modified") {
		t.Errorf("exit code %d\n%s", code, p.messages())
	}
}

// The parameters of the pod's own namespaces are what the apps see, and the
// machine's are as before.
func TestClause_C_SYS_01_OfThePodAlone(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	names := []string{"net/ipv4/ip_unprivileged_port_start", "kernel/shmmax", "kernel/domainname", "kernel/panic", "vm/swappiness"}
	before := map[string]string{}
	for _, name := range names {
		before[name] = read(name)
	}
	values := `{"net.ipv4.ip_unprivileged_port_start": "81", "kernel.shmmax": "65536", "kernel.domainname": "pod.test",
		"kernel.panic": "7", "vm.swappiness": "7", "net/../kernel/panic": "7", "net.ipv4....kernel.panic": "7"}`
	p := launch(t, []testApp{{Name: "a", App: map[string]any{
		"exec": []string{"/bin/sh", "-c", "cd /proc/sys; cat " + strings.Join(names, " ")},
	}}}, withPod("isolators", isolatorList("os/unix/sysctl", values)))
	for i, want := range []string{"81", "65536", "pod.test", strings.TrimSpace(before[names[3]]), strings.TrimSpace(before[names[4]])} {
		if got := p.line("a"); got != want {
			t.Errorf("%s is %q in the pod, want %q", names[i], got, want)
		}
	}
	if text := p.messages(); !strings.Contains(text, "name=os/unix/sysctl fate=modified") {
		t.Errorf("what was refused is not told:\n%s", text)
	}
	for _, name := range names {
		if got := read(name); got != before[name] {
			t.Errorf("the machine's %s is %q, was %q", name, got, before[name])
		}
	}
}

// withoutControllers has the daemon make the stager's cgroup below one that hands
// it no controller, on version 2, where that can be.
func withoutControllers(p *testPod, _ map[string]any) {
	if len(hierarchies()) > 1 {
		return
	}
	parent := filepath.Join(hierarchies()[0], p.cgroup)
	p.must(os.Mkdir(parent, 0o755))
	p.t.Cleanup(func() {
		if err := os.Remove(parent); err != nil {
			p.t.Error(err)
		}
	})
	p.cgroup += "/below"
}

// A daemon that gives the stager no controllers gets a running pod, and is told.
func TestClause_C_ISO_02_NoControllers(t *testing.T) {
	app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "isolators": isolatorList(
		"resource/cpu", `{"limit": "1"}`, "resource/memory", `{"limit": "64Mi"}`, "resource/block-bandwidth", rate(1<<30))}}
	p := launch(t, []testApp{app}, withoutControllers)
	p.isReady()
	var told struct{ App []isolatorFate }
	if err := json.Unmarshal([]byte(p.callIn("status", "--isolators", "a")), &told); err != nil {
		t.Fatal(err)
	}
	want := []fate{enforced, enforced, modified}
	if len(hierarchies()) == 1 {
		want = []fate{ignored, ignored, ignored}
	}
	checkFates(t, want, told.App)
}

// The fate of each isolator is to be had, one by one; strict, the pod is refused.
func TestClause_C_ISO_02_FatesAreTold(t *testing.T) {
	app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "isolators": isolatorList(
		"example.com/unknown", `{"x": 1}`, "os/linux/oom-score-adj", "500", "resource/network-bandwidth", rate(1<<30),
		"os/linux/cpu-shares", "512", "resource/memory", `{"limit": "64Mi"}`, "resource/block-bandwidth", rate(1<<30))}}
	ofBlocks := modified
	if len(hierarchies()) == 1 {
		ofBlocks = enforced // version 2
	}
	p := launch(t, []testApp{app})
	p.isReady()
	var told struct{ Pod, App []isolatorFate }
	if err := json.Unmarshal([]byte(p.callIn("status", "--isolators", "a")), &told); err != nil {
		t.Fatal(err)
	}
	checkFates(t, []fate{ignored, enforced, enforced, enforced, enforced, ofBlocks}, told.App)

	p = launch(t, []testApp{app}, withConfig("strictIsolators", true))
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `isolator "example.com/unknown" would be ignored`) {
		t.Errorf("exit code %d\n%s", code, p.messages())
	}
}
