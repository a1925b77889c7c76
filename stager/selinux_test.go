package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"kurma.io/stager/container/machine"
	"kurma.io/stager/plan"
	"kurma.io/stager/tests/clause"
)

// If the kernel does not use SELinux, an app's SELinux context is ignored, and the log says so; if
// it does, the app has the context. Every policy allows the context of the test itself.
func TestSELinuxContextIsEnforcedOrIgnored(t *testing.T) {
	clause.Covers(t, "C-SEL-01")
	label, want := "user:role:type:level", []plan.Fate{plan.Ignored}
	enforces := machine.Support().SELinux
	if enforces {
		own, err := os.ReadFile("/proc/self/attr/current")
		if err != nil {
			t.Fatal(err)
		}
		label, want = strings.Trim(string(own), "\x00\n"), []plan.Fate{plan.Enforced}
	}
	parts := strings.SplitN(label, ":", 4)
	p := launch(t, []testApp{{Name: "a", App: map[string]any{
		"exec":      []string{"/bin/sh", "-c", "cat /proc/self/attr/current; echo; echo runs; exec sleep 1000"},
		"isolators": isolatorList("os/linux/selinux-context", fmt.Sprintf(`{"user":%q,"role":%q,"type":%q,"level":%q}`, parts[0], parts[1], parts[2], parts[3])),
	}}})
	p.isReady()
	var status struct{ App []plan.IsolatorFate }
	p.must(json.Unmarshal([]byte(p.callIn("status", "--isolators", "a")), &status))
	checkFates(t, want, status.App)
	var context string
	for line := ""; line != "runs"; line = p.line("a") {
		context += line
	}
	if enforces && !strings.Contains(context, label) {
		t.Errorf("the app has the context %q, want %q", context, label)
	}
	if !enforces && !strings.Contains(p.messages(), "the kernel does not use SELinux") {
		t.Errorf("it is not logged:\n%s", p.messages())
	}
}
