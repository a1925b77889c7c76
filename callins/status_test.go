package callins

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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

// An app ends after its state has been read, and before its process's number is sent.
func TestStatusReportsThatAnAppEndsMeanwhile(t *testing.T) {
	p := newPod(t, sleeper, testApp{Name: "other", Args: []string{"/bin/sleep", "infinity"}})
	var before map[string]appState
	if err := json.Unmarshal([]byte(finish(t, p.caller("status", "")).Stdout), &before); err != nil {
		t.Fatal(err)
	}
	c := rawCall(t, p)
	err := c.ask(request{Version: protocolVersion, Call: requestStatus})
	if _, _, nextErr := c.next(kindProcess); err != nil || nextErr != nil {
		t.Fatal(err, nextErr)
	}
	if err := unix.Kill(before["other"].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.awaitEnded(1)
	err = c.send(note{Process: 1}, nil)
	_, packet, nextErr := c.next(kindDocument)
	if err != nil || nextErr != nil {
		t.Fatal(err, nextErr)
	}
	text, err := readDocument(packet)
	want := `{"app":{"pid":1,"exited":false},"other":{"exited":false,"ending":true}}`
	if got := strings.Join(strings.Fields(string(text)), ""); err != nil || got != want {
		t.Errorf("status %s, %v, want %s", text, err, want)
	}
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
