package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A key that is null is one that is left out.
func TestANullInTheConfigurationIsTheDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	read := func(text string) config {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readConfig(path, "/state")
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		return c
	}
	want := read(`{}`)
	wire := reflect.TypeFor[config]()
	for i := range wire.NumField() {
		key, _, _ := strings.Cut(wire.Field(i).Tag.Get("json"), ",")
		for _, text := range []string{`{"` + key + `": null}`, `{"` + key + "\":\n null\n}"} {
			if got := read(text); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", text, got, want)
			}
		}
	}
	if got := read(`null`); !reflect.DeepEqual(got, want) {
		t.Errorf("null: %+v, want %+v", got, want)
	}
}

func TestAPodRunsWithANullStagerConfig(t *testing.T) {
	h := newHost(t)
	config := string(must(os.ReadFile(filepath.Join(h.dir, "config.json"))))
	h.text("config.json", strings.Replace(config, "{", `{"defaultStagerConfig":null,`, 1))
	h.run("run", "--detach", "--name", "p", "example.com/one")
	h.run("rm", "--force", "p")
}
