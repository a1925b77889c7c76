package callins

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatusReportsRunningAndEndedApps(t *testing.T) {
	exits := func(name, script string) testApp {
		return testApp{Name: name, Args: []string{"/bin/sh", "-c", script}}
	}
	p := newPod(t, sleeper, exits("zero", "exit 0"), exits("seven", "exit 7"), exits("killed", "kill -9 $$"))
	var apps map[string]json.RawMessage
	got := p.awaitEnded(3)
	if err := json.Unmarshal([]byte(got.Stdout), &apps); err != nil {
		t.Fatal(err)
	}
	var running appState
	if err := json.Unmarshal(apps["app"], &running); err != nil {
		t.Fatal(err)
	}
	if running.Exited || running.PID <= 1 {
		t.Errorf("running app has status %s", apps["app"])
	}
	want := fmt.Sprintf(`{
	"app": {
		"pid": %d,
		"exited": false
	},
	"zero": {
		"exited": true,
		"exitCode": 0
	},
	"seven": {
		"exited": true,
		"exitCode": 7
	},
	"killed": {
		"exited": true,
		"exitCode": 137,
		"exitReason": "killed"
	}
}
`, running.PID)
	if diff := cmp.Diff(want, got.Stdout); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	checkSleeper(t, running.PID) // by the caller's numbers
}

func TestStatusAnswersBeforeThePodIsReady(t *testing.T) {
	p := listeningPod(t, testApp{Name: "late", Before: "sleep infinity", Args: []string{"/bin/true"}})
	want := result{Stdout: "{\n\t\"late\": {\n\t\t\"exited\": false\n\t}\n}\n"}
	if diff := cmp.Diff(want, finish(t, p.caller("status", ""))); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusReportsTheFatesOfIsolators(t *testing.T) {
	p := newPod(t, sleeper)
	tests := []struct {
		name string
		args []string
		want result
	}{
		{"an app", []string{"--isolators", "app"}, result{Stdout: "{\n\t\"resource/memory\": \"enforced\"\n}\n"}},
		{"no app", []string{"--isolators", "x"}, result{Code: 1, Stderr: "status: app \"x\": no such app\n"}},
		{"bad use", []string{"x"}, result{Code: 1, Stderr: "status: unknown arguments [\"x\"], want none or --isolators APP\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, finish(t, p.caller("status", "", test.args...))); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCallInsReportThatThePodHasGone(t *testing.T) {
	p := newPod(t, sleeper)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait()
	settings := shell(t, "true")
	for role, code := range map[string]int{"status": 1, "run": 125, "attach": 125} {
		args := []string{"app"}
		if role == "status" {
			args = nil
		}
		got := finish(t, p.caller(role, settings, args...))
		if got.Code != code || !strings.HasPrefix(got.Stderr, role+": the pod is not running") || got.Stdout != "" {
			t.Errorf("%s of a pod that has gone: %+v, want code %d", role, got, code)
		}
	}
}
