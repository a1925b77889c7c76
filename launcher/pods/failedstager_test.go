package pods

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/names"
)

// A stager that fails when its apps have ended well is told: its exit status is no app's.
func TestAStagerThatFailsAfterItsAppsIsTold(t *testing.T) {
	for _, tt := range []struct {
		code  int
		state string
		want  string
	}{
		{1, `{"app": {"exited": true, "exitCode": 0}}`, "exit status 1 after its apps"},
		{3, `{"app": {"exited": true, "exitCode": 3}}`, ""},
		{0, `{"app": {"exited": true, "exitCode": 0}}`, ""},
	} {
		p := &Pod{Dir: t.TempDir(), State: State{Phase: Exited, Exit: &Exit{Code: tt.code}}}
		p.Plan.LogDir, p.Plan.Apps = "/logs", []App{{Name: "app"}}
		file := filepath.Join(p.logsPath(), names.LastStatus)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(tt.state), 0o600); err != nil {
			t.Fatal(err)
		}
		if why := p.StagerFailed(); (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("exit status %d of %s: %q, want %q", tt.code, tt.state, why, tt.want)
		}
	}
}
