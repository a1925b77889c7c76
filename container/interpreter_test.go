package container

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/supervisor"
)

// F-17: of a program that is there, the error says what is not.
func TestMissingInterpreterIsNamed(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	dynamic, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(dynamic)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"script": "#! /no/such/sh -e\necho\n", "bare": "#!/no/such/sh", "nested": "#!/bin/script\n",
		"dynamic": string(program), "good": "#!/bin/sh\nexec sleep 1000\n", "empty": "",
		"odd": "\x7fELF\x02\x01\x01" + strings.Repeat("\xff", 100),
	} {
		if err := os.WriteFile(filepath.Join(root, "bin", name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := startSleeper(t, r, testSpec(root, "good"))
	for _, tt := range []struct{ program, want string }{
		{"/bin/script", `exec /bin/script: no such file or directory: the program is there, the interpreter "/no/such/sh" that it needs is not`},
		{"bare", `exec bare: no such file or directory: the program is there, the interpreter "/no/such/sh" that it needs is not`},
		{"nested", `the interpreter "/no/such/sh" that it needs is not`},
		{"dynamic", `the program is there, the interpreter "/lib`},
		{"/bin/nothing", "exec /bin/nothing: no such file or directory"},
		{"odd", "exec odd: exec format error"},
	} {
		check := func(how string, err error) {
			var exec *supervisor.ExecError
			if !errors.As(err, &exec) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s of %s: %v, want %s", how, tt.program, err, tt.want)
			}
		}
		_, err := c.Exec(rootCommand(tt.program), supervisor.Stdio{})
		check("run", err)
		started := r.Container(testSpec(root, tt.program))
		_, err = started.Start(supervisor.Stdio{})
		check("start", err)
		if err := started.Destroy(); err != nil {
			t.Error(err)
		}
	}
}
