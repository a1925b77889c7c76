package daemon

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
	read := func(text string) Config {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(path)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		return c
	}
	want := read(`{}`)
	wire := reflect.TypeFor[Config]()
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

func TestAWrongConfigurationIsNamedByItsKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	for text, want := range map[string]string{
		`{"parentCgroupName": 5}`:                      `parentCgroupName: 5: must be a string`,
		`{"trustedKeys": ["a", {}]}`:                   `trustedKeys[1]: {}: must be a string`,
		`{"imagePins": {"example.com/a": 1}}`:          `imagePins["example.com/a"]: 1: must be a string`,
		`{"parentCgroupNam": "x"}`:                     `unknown key "parentCgroupNam"`,
		`{"podsDir": "x"}`:                             `unknown key "podsDir"`,
		`{"elephant": "x"}`:                            `unknown key "elephant"`,
		`{"podsDirectory": "x", "PodsDirectory": "y"}`: `podsDirectory: given twice, as "podsDirectory" and "PodsDirectory"`,
		`{"podsDirectory": "x",}`:                      `not a JSON document: line 1, column 23: invalid character '}' looking for beginning of object key string`,
		`{"parentCgroupName": "../x"}`:                 `parentCgroupName: "../x": want a path below the root of the cgroups, such as "machine/kurma"`,
		`{"parentCgroupName": "/x"}`:                   `parentCgroupName: "/x": want a path below the root of the cgroups, such as "machine/kurma"`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadConfig(path); err == nil || err.Error() != "read configuration "+path+": "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
