package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/plan"
	"kurma.io/stager/tests/clause"
)

// Two apps that take 48 MiB each do not fit into a pod of 64, though each of
// them may have 256; one without the other fits. What they take stays in the
// pod's /dev/shm.
func TestPodLimitBoundsTheSumOfItsApps(t *testing.T) {
	clause.Covers(t, "C-ISO-01")
	// Each app waits for the other one: the kernel would else kill the start of the second.
	app := func(name, other string) testApp {
		fill := fmt.Sprintf("echo >/dev/shm/%s; until [ -e /dev/shm/%s ]; do :; done; exec dd if=/dev/zero of=/dev/shm/%[1]s bs=1M count=48", name, other)
		return testApp{Name: name, App: map[string]any{
			"exec": []string{"/bin/sh", "-c", fill}, "isolators": isolatorList("resource/memory", `{"limit": "256Mi"}`),
		}}
	}
	limits, room := withPod("isolators", isolatorList("resource/memory", `{"limit": "64Mi"}`)), withConfig("shmSize", "256Mi")
	p := launch(t, []testApp{app("a", "a")}, limits, room, withConfig("exitPolicy", "all"))
	if code := p.exits(); code != 0 {
		t.Errorf("alone: exit code %d\n%s", code, p.messages())
	}
	p = launch(t, []testApp{app("a", "b"), app("b", "a")}, limits, room, withConfig("exitPolicy", "failure"))
	if code := p.exits(); code != 137 || !strings.Contains(p.messages(), "reason=oom-killed") {
		t.Errorf("exit code %d\n%s", code, p.messages())
	}
}

func TestPodLimitBoundsAnApp(t *testing.T) {
	clause.Covers(t, "C-ISO-01")
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
// spec.Support's are as before.
func TestSysctlChangesThePodAlone(t *testing.T) {
	clause.Covers(t, "C-SYS-01")
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
		t.Errorf("what was refused is not logged:\n%s", text)
	}
	for _, name := range names {
		if got := read(name); got != before[name] {
			t.Errorf("the spec.Support's %s is %q, was %q", name, got, before[name])
		}
	}
}

// withoutControllers makes a daemon that enables no controllers for the stager's cgroup, which is
// possible with version 2.
func withoutControllers(p *testPod, _ map[string]any) { p.bare = true }

// If the daemon enables no controllers for the stager, the pod runs, and the isolators are reported
// as ignored.
func TestIsolatorsWithoutControllersAreIgnored(t *testing.T) {
	clause.Covers(t, "C-ISO-02")
	app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "isolators": isolatorList(
		"resource/cpu", `{"limit": "1"}`, "resource/memory", `{"limit": "64Mi"}`, "resource/block-bandwidth", rate(1<<30))}}
	p := launch(t, []testApp{app}, withoutControllers)
	p.isReady()
	var status struct{ App []plan.IsolatorFate }
	if err := json.Unmarshal([]byte(p.callIn("status", "--isolators", "a")), &status); err != nil {
		t.Fatal(err)
	}
	want := []plan.Fate{plan.Enforced, plan.Enforced, plan.Modified}
	if len(hierarchies()) == 1 {
		want = []plan.Fate{plan.Ignored, plan.Ignored, plan.Ignored}
	}
	checkFates(t, want, status.App)
}

// status --isolators reports the fate of each isolator; with strictIsolators the pod is refused.
func TestFatesOfIsolatorsAreLogged(t *testing.T) {
	clause.Covers(t, "C-ISO-02")
	app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "isolators": isolatorList(
		"example.com/unknown", `{"x": 1}`, "os/linux/oom-score-adj", "500", "resource/network-bandwidth", rate(1<<30),
		"os/linux/cpu-shares", "512", "resource/memory", `{"limit": "64Mi"}`, "resource/block-bandwidth", rate(1<<30))}}
	ofBlocks := plan.Modified
	if len(hierarchies()) == 1 {
		ofBlocks = plan.Enforced // version 2
	}
	p := launch(t, []testApp{app})
	p.isReady()
	var status struct{ Pod, App []plan.IsolatorFate }
	if err := json.Unmarshal([]byte(p.callIn("status", "--isolators", "a")), &status); err != nil {
		t.Fatal(err)
	}
	checkFates(t, []plan.Fate{plan.Ignored, plan.Enforced, plan.Enforced, plan.Enforced, plan.Enforced, ofBlocks}, status.App)

	p = launch(t, []testApp{app}, withConfig("strictIsolators", true))
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `isolator "example.com/unknown" would be ignored`) {
		t.Errorf("exit code %d\n%s", code, p.messages())
	}
}

// isolatorList is a manifest's isolators from NAME VALUE pairs.
// rate is a limit of bytes a second on every device.
func rate(limit int) string { return fmt.Sprintf(`{"default": true, "limit": "%d"}`, limit) }

func isolatorList(pairs ...string) []map[string]any {
	var list []map[string]any
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]any{"name": pairs[i], "value": json.RawMessage(pairs[i+1])})
	}
	return list
}

func checkFates(t *testing.T, want []plan.Fate, got []plan.IsolatorFate) {
	t.Helper()
	var fates []plan.Fate
	for _, f := range got {
		fates = append(fates, f.Fate)
	}
	if !slices.Equal(fates, want) {
		t.Errorf("fates %+v, want %q", got, want)
	}
}
