package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"kurma.io/stager/build"
	"kurma.io/stager/manifest"
)

// read reads and checks an image file.
func read(path string, visit func(string, *tar.Header, io.Reader) error) (build.Image, *manifest.Image, error) {
	file, err := os.Open(path)
	if err != nil {
		return build.Image{}, nil, err
	}
	defer file.Close()
	image, err := build.Read(file, visit)
	if err != nil {
		return image, nil, fmt.Errorf("%s: %w", path, err)
	}
	parsed, err := manifest.DecodeImage(image.Manifest)
	if err != nil {
		return image, nil, fmt.Errorf("%s: manifest: %s", path, strings.TrimSpace(err.Error()))
	}
	return image, parsed, nil
}

func runValidate(s streams, flags *flag.FlagSet, args []string) error {
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return usageError{"validate: want FILE.aci..."}
	}
	var errs []error
	for _, path := range flags.Args() {
		image, _, err := read(path, nil)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		warnUnmarked(s, path, image)
		fmt.Fprintf(s.stdout, "%s: valid image\n", path)
	}
	return errors.Join(errs...)
}

// warnUnmarked warns of an image that may have been cut off between two files.
func warnUnmarked(s streams, path string, image build.Image) {
	if !image.Marked {
		fmt.Fprintf(s.stderr, "aci: warning: %s: the archive has no end marker and may be incomplete\n", path)
	}
}

// inspected is what `inspect --json` prints.
type inspected struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Labels       map[string]string `json:"labels"`
	Compression  string            `json:"compression"`
	Size         int64             `json:"size"`
	Files        int               `json:"files"`
	Dependencies []string          `json:"dependencies,omitempty"`
	App          *inspectedApp     `json:"app,omitempty"`
}

type inspectedApp struct {
	Exec  []string `json:"exec"`
	User  string   `json:"user"`
	Group string   `json:"group"`
}

func runInspect(s streams, flags *flag.FlagSet, args []string) error {
	asJSON := flags.Bool("json", false, "print one line of JSON")
	raw := flags.Bool("manifest", false, "print the manifest as it is in the image")
	files := flags.Bool("files", false, "list the files in the image's root")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return usageError{"inspect: want FILE.aci"}
	}
	var visit func(string, *tar.Header, io.Reader) error
	if *files {
		visit = func(name string, h *tar.Header, _ io.Reader) error { return listFile(s.stdout, name, h) }
	}
	image, parsed, err := read(flags.Arg(0), visit)
	switch {
	case err != nil || *files:
		return err
	case *raw:
		_, err := s.stdout.Write(image.Manifest)
		return err
	case *asJSON:
		return json.NewEncoder(s.stdout).Encode(inspect(image, parsed))
	}
	return printInspected(s.stdout, inspect(image, parsed))
}

// listFile prints a file as ls does.
func listFile(w io.Writer, name string, h *tar.Header) error {
	link := ""
	switch h.Typeflag {
	case tar.TypeSymlink:
		link = fmt.Sprintf(" -> %q", h.Linkname)
	case tar.TypeLink:
		link = fmt.Sprintf(" = %q", "/"+h.Linkname)
	}
	_, err := fmt.Fprintf(w, "%s %5d %5d %10d %q%s\n", h.FileInfo().Mode(), h.Uid, h.Gid, h.Size, "/"+name, link)
	return err
}

func inspect(image build.Image, m *manifest.Image) inspected {
	i := inspected{
		ID: image.ID, Name: m.Name.String(), Labels: make(map[string]string),
		Compression: image.Compression, Size: image.Size, Files: image.Files,
	}
	for _, label := range m.Labels {
		i.Labels[label.Name.String()] = label.Value
	}
	for _, d := range m.Dependencies {
		i.Dependencies = append(i.Dependencies, d.ImageName.String())
	}
	if m.App != nil {
		i.App = &inspectedApp{m.App.Exec, m.App.User, m.App.Group}
	}
	return i
}

func printInspected(w io.Writer, i inspected) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "name\t%s\n", i.Name)
	fmt.Fprintf(table, "id\t%s\n", i.ID)
	for _, name := range []string{"version", "os", "arch"} {
		if value, ok := i.Labels[name]; ok {
			fmt.Fprintf(table, "%s\t%q\n", name, value)
		}
	}
	if i.App != nil {
		fmt.Fprintf(table, "exec\t%q\nuser\t%q\ngroup\t%q\n", i.App.Exec, i.App.User, i.App.Group)
	}
	for _, d := range i.Dependencies {
		fmt.Fprintf(table, "depends\t%s\n", d)
	}
	fmt.Fprintf(table, "size\t%d bytes in %d files, compression %s\n", i.Size, i.Files, i.Compression)
	return table.Flush()
}

func runExtract(s streams, flags *flag.FlagSet, args []string) error {
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return usageError{"extract: want FILE.aci DIR"}
	}
	file, err := os.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer file.Close()
	image, err := build.Extract(file, flags.Arg(1))
	if err != nil {
		return fmt.Errorf("extract %s: %w", flags.Arg(0), err)
	}
	warnUnmarked(s, flags.Arg(0), image)
	_, err = fmt.Fprintln(s.stdout, image.ID)
	return err
}
