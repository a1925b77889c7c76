package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// moduleHash returns the SHA-256 of a go.sum entry in hexadecimal digits.
func moduleHash(sum string) (string, bool) {
	encoded, ok := strings.CutPrefix(sum, "h1:")
	if !ok {
		return "", false
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return hex.EncodeToString(raw), err == nil
}

// moduleDir returns a module's folder in Go's module cache.
func moduleDir(cache, path, version string) (string, error) {
	path, err := module.EscapePath(path)
	if err != nil {
		return "", err
	}
	version, err = module.EscapeVersion(version)
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, filepath.FromSlash(path)+"@"+version), nil
}

// license copies all licences and notices in dir into the component's folder, and gives the
// component the identifiers of the licences in dir itself. Dir without a licence is an error.
func (o options) license(c *cdx.Component, dir string) error {
	files, err := licenseFiles(dir)
	if err != nil {
		return fmt.Errorf("find licences of %s: %w", c.Name, err)
	}
	identifiers := []string{}
	for _, name := range files {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(o.licenses, c.Name+"@"+c.Version, name)); err != nil {
			return err
		}
		if filepath.Dir(name) != "." || strings.EqualFold(name, "PATENTS") { // a grant, not a licence with an identifier
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		for _, match := range licensecheck.Scan(text).Match {
			identifiers = append(identifiers, match.ID)
		}
	}
	if len(identifiers) == 0 {
		return fmt.Errorf("%s has no licence in %s that is known", c.Name, dir)
	}
	slices.Sort(identifiers)
	licenses := cdx.Licenses{}
	for _, id := range slices.Compact(identifiers) {
		licenses = append(licenses, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	c.Licenses = &licenses
	return nil
}

// licenseFiles lists the licences and notices in dir and below, by their paths in dir, sorted.
// Tests' data and programs' examples are not linked.
func licenseFiles(dir string) ([]string, error) {
	named := regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-.][-.a-z0-9]*)?$`)
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (d.Name() == "testdata" || d.Name() == "test" || d.Name() == "examples"):
			return fs.SkipDir
		case !d.Type().IsRegular() || !named.MatchString(d.Name()) || strings.HasSuffix(d.Name(), ".go"):
			return nil
		}
		name, err := filepath.Rel(dir, path)
		found = append(found, name)
		return err
	})
	return found, err
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
