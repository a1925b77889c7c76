package server

import "testing"

// The exit status 125 is the command's own, unless the stager says that it could not run the command.
func TestCommandsThatCouldNotBeRun(t *testing.T) {
	for _, test := range []struct {
		code       int
		text, want string
		err        string
	}{
		{125, "run: sorry\n", "run: sorry\n", ""},
		{125, "", "", ""},
		{125, "NAME: the pod's supervisor has gone\n", "", "run command: the pod's supervisor has gone"},
		{125, "out\nNAME: the pod's supervisor has gone\n", "", "run command: the pod's supervisor has gone"},
		{127, "NAME: no such file\n", "run: no such file\n", ""},
	} {
		got, err := messageOf("NAME", test.code, []byte(test.text))
		if string(got) != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%d, %q: %q, %v", test.code, test.text, got, err)
		}
	}
}
