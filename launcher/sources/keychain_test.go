package sources

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

func TestCredentialsOfAHelper(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nread host\necho \"{\\\"ServerURL\\\": \\\"$host\\\", \\\"Username\\\": \\\"user\\\", \\\"Secret\\\": \\\"of $host\\\"}\"\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-mine"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	path := filepath.Join(dir, "auth.json")
	if err := os.WriteFile(path, []byte(`{"auths": {"example.com/own": {"auth": "YTpi"}, "example.com": {}}, "credHelpers": {"example.com": "mine", "docker.io": "mine"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"example.com/app": "user:of example.com", "example.com/own": "a:b", "app": "user:of docker.io", "example.org/app": ":"} {
		repository, err := name.NewRepository(text)
		if err != nil {
			t.Fatal(err)
		}
		found, err := authFile(path).Resolve(repository)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := found.Authorization(); err != nil || c.Username+":"+c.Password != want {
			t.Errorf("%s: %s:%s, %v, want %s", text, c.Username, c.Password, err, want)
		}
	}
}

// The credentials of skopeo login are those of the longest key, and a file that is missing has none.
func TestCredentialsOfAnAuthFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(path, []byte(`{"auths": {"example.com": {"auth": "YTpi"}, "example.com/team/app": {"auth": "Yzpk"}, "docker.io": {"auth": "ZTpm"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"example.com/x/y": "a:b", "example.com/team/app": "c:d", "example.com/team/apple": "a:b", "app": "e:f", "example.org/x": ":"} {
		repository, err := name.NewRepository(text)
		if err != nil {
			t.Fatal(err)
		}
		for file, want := range map[authFile]string{authFile(path): want, authFile(path + ".none"): ":"} {
			found, err := file.Resolve(repository)
			if err != nil {
				t.Fatal(err)
			}
			c, err := found.Authorization()
			if err != nil || c.Username+":"+c.Password != want {
				t.Errorf("%s: %s:%s, %v, want %s", text, c.Username, c.Password, err, want)
			}
		}
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := authFile(path).Resolve(authn.Resource(name.MustParseReference("app").Context())); err == nil {
		t.Errorf("a damaged file: %v", found)
	}
}
