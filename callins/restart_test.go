package callins

import (
	"strings"
	"testing"
)

func TestRestartReturnsWhenTheAppRunsAgain(t *testing.T) {
	p := newPod(t, sleeper, testApp{Name: "ends", Args: []string{"/bin/sh", "-c", "exit 4"}})
	p.awaitEnded(1)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"app"}, 0, ""},
		{[]string{"ends"}, 0, ""},
		{[]string{"none"}, 1, "restart: app \"none\": no such app\n"},
		{nil, 1, "restart: want one argument, the app's name, have 0\n"},
		{[]string{"app", "ends"}, 1, "restart: want one argument, the app's name, have 2\n"},
	} {
		got := finish(t, p.caller("restart", "", test.args...))
		if got.Code != test.code || got.Stderr != test.want || got.Stdout != "" {
			t.Errorf("restart %q: %+v", test.args, got)
		}
	}
	if got := finish(t, p.caller("status", "")).Stdout; strings.Count(got, `"restarts": 1`) != 2 || !strings.Contains(got, `"lastExitCode": 143`) {
		t.Errorf("status: %s", got)
	}
}
