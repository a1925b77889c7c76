package callins

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

const someSettings = `{"exec": ["/bin/bash", ""], "user": "0", "group": "/f", "supplementaryGIDs": [20, 4294967294],
	"workingDirectory": "/w", "environment": [{"name": "A.b-1", "value": "$x\n="}, {"name": "_", "value": ""}], "tty": true}`

func TestParseSettingsReadsEveryField(t *testing.T) {
	got, err := parseSettings([]byte(someSettings))
	if err != nil {
		t.Fatal(err)
	}
	dollar, empty := "$x\n=", ""
	want := settings{
		Exec: []string{"/bin/bash", ""}, User: "0", Group: "/f", SupplementaryGIDs: []int64{20, 4294967294},
		WorkingDirectory: "/w", Environment: []variable{{"A.b-1", &dollar}, {"_", &empty}}, TTY: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	command := spec.Command{
		Args: []string{"/bin/bash", ""}, Env: []string{"A.b-1=$x\n=", "_=", "PATH=/bin"},
		User: "0", Group: "/f", SupplementaryGID: []int{20, 4294967294}, Dir: "/w",
	}
	if diff := cmp.Diff(command, got.command([]string{"PATH=/bin", "_=x"})); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
}

func TestParseSettingsRefusesWrongSettings(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", ``, `settings are empty`},
		{"null", `null`, `settings: "exec" is required`},
		{"an array", `[]`, `read settings: the document: []: must be an object`},
		{"cut", `{"exec": ["a"], "us`, `read settings: not a JSON document: line 1, column 19: unexpected end of JSON input`},
		{"more", `{"exec": ["a"], "user": "0", "group": "0"} x`, `read settings: more follows`},
		{"twice", `{"exec": ["a"], "user": "0", "group": "0"}{}`, `read settings: more follows`},
		{"not UTF-8", "{\"exec\": [\"\xff\"], \"user\": \"0\", \"group\": \"0\"}", `settings are not valid UTF-8`},
		{"an unknown field", `{"exec": ["a"], "usr": "1000", "user": "0", "group": "0"}`, `read settings: unknown key "usr"`},
		{"an unknown field of a variable", `{"environment": [{"name": "A", "valu": ""}]}`, `read settings: unknown key "valu"`},
		{"a field twice", `{"exec": ["a"], "user": "1000", "group": "0", "user": "0"}`, `settings: "user" and "user" are the same field`},
		{"a field twice in another case", `{"exec": ["a"], "user": "1000", "group": "0", "USER": "0"}`, `settings: "user" and "USER" are the same field`},
		{"a field twice by Unicode's rules", `{"exec": ["a"], "user": "1000", "group": "0", "u\u017fer": "0"}`, `settings: "user" and "uſer" are the same field`},
		{"no exec", `{"user": "0", "group": "0"}`, `settings: "exec" is required`},
		{"empty exec", `{"exec": [], "user": "0", "group": "0"}`, `settings: "exec" is required`},
		{"empty program", `{"exec": [""], "user": "0", "group": "0"}`, `settings: "exec" has an empty program`},
		{"no user", `{"exec": ["a"], "group": "0"}`, `settings: "user" is required`},
		{"no group", `{"exec": ["a"], "user": "0"}`, `settings: "group" is required`},
		{"a number as user", `{"exec": ["a"], "user": 0, "group": "0"}`, `read settings: user: 0: must be a string`},
		{"negative group", `{"exec": ["a"], "user": "0", "group": "0", "supplementaryGIDs": [-1]}`, `settings: "supplementaryGIDs" has -1`},
		{"large group", `{"exec": ["a"], "user": "0", "group": "0", "supplementaryGIDs": [4294967295]}`, `settings: "supplementaryGIDs" has 4294967295`},
		{"relative directory", `{"exec": ["a"], "user": "0", "group": "0", "workingDirectory": "a"}`, `settings: "workingDirectory" "a" is not absolute`},
		{"NUL in exec", `{"exec": ["a", "\u0000"], "user": "0", "group": "0"}`, `settings: "\x00" has a NUL character`},
		{"NUL in a value", `{"exec": ["a"], "user": "0", "group": "0", "environment": [{"name": "A", "value": "\u0000"}]}`, `settings: "\x00" has a NUL`},
		{"no name", `{"exec": ["a"], "user": "0", "group": "0", "environment": [{"value": "x"}]}`, `settings: "environment" has the name ""`},
		{"digit first", `{"exec": ["a"], "user": "0", "group": "0", "environment": [{"name": "1A", "value": "x"}]}`, `settings: "environment" has the name "1A"`},
		{"equals sign", `{"exec": ["a"], "user": "0", "group": "0", "environment": [{"name": "A=", "value": "x"}]}`, `settings: "environment" has the name "A="`},
		{"no value", `{"exec": ["a"], "user": "0", "group": "0", "environment": [{"name": "A"}]}`, `settings: "environment" has no value for "A"`},
		{"name twice", `{"exec": ["a"], "user": "0", "group": "0", "environment": [{"name": "A", "value": "x"}, {"name": "A", "value": ""}]}`, `settings: "environment" has "A" twice`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseSettings([]byte(test.text))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add([]byte(someSettings))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseSettings(text); err == nil && (len(s.Exec) == 0 || s.User == "" || s.Group == "") {
			t.Errorf("settings %q pass", text)
		}
	})
}

// passed is a descriptor as a daemon passes it, open on exec.
func passed(t *testing.T, f *os.File) int {
	t.Helper()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestReadSettingsAcceptsSettingsUpToTheLimit(t *testing.T) {
	for _, size := range []int{0, 1, maxSettings, maxSettings + 1} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			w.WriteString(strings.Repeat("x", size))
			w.Close()
		}()
		got, err := readSettings(passed(t, r), settingsTime)
		r.Close()
		switch {
		case size <= maxSettings && (err != nil || len(got) != size):
			t.Errorf("%d bytes: read %d, %v", size, len(got), err)
		case size > maxSettings && (err == nil || err.Error() != "settings are larger than 1048576 bytes"):
			t.Errorf("%d bytes: error %v", size, err)
		}
	}
}

func TestReadSettingsGivesUpWithoutAnEnd(t *testing.T) {
	for name, text := range map[string]string{"never": "", "no end of file": someSettings} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			w.WriteString(text)
			if _, err := readSettings(passed(t, r), time.Millisecond); err == nil || !strings.HasSuffix(err.Error(), "no end of file in time") {
				t.Errorf("error %v", err)
			}
		})
	}
	if settingsTime != 10*time.Second {
		t.Errorf("the limit is %v, the specification's is 10 s", settingsTime)
	}
}

// A writer that goes on for ever does not move the limit.
func TestReadSettingsGivesUpOnAnEndlessWriter(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := w.WriteString(" "); err != nil {
				w.Close()
				return
			}
		}
	}()
	if _, err := readSettings(passed(t, r), 5*time.Millisecond); err == nil {
		t.Error("settings without end were read")
	}
	r.Close() // ends the writer
}

// A descriptor of the program's own is not taken for one that
// was passed.
func TestReadSettingsRefusesADescriptorThatWasNotPassed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := readSettings(int(r.Fd()), settingsTime); err == nil {
		t.Error("read from a descriptor that is closed on exec")
	}
}

func TestReadSealedRefusesOtherFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	large, err := sealed("large", make([]byte, maxSettings+1))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{"pipe": r, "file": memory(t, "x"), "large": large} {
		if _, err := readSealed(f, maxSettings); err == nil {
			t.Errorf("%s was read", name)
		}
		f.Close()
	}
}
