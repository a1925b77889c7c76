package networks

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

const (
	// maxInterface is the longest name of an interface in bytes (IFNAMSIZ less its end).
	maxInterface = 15
	// maxRandom is the most that {{random N}} returns.
	maxRandom = 32
)

// interfaceName executes a network's template for a pod. used are the interfaces that the
// pod has already, loopback aside; "" stands for a network without one. The functions:
//
//	uuid       the pod's UUID
//	shortuuid  its first 8 characters
//	num        the number of interfaces so far
//	random N   N letters and digits, at most 32
//
// A name that the pod has already, or that Linux does not take, is an error. A template with
// random is tried again instead.
func interfaceName(text, uuid string, used []string) (string, error) {
	if text == "" {
		return "", nil
	}
	var name string
	var err error
	for range 16 {
		if name, err = render(text, uuid, len(used)); err != nil {
			return "", err
		}
		if err = checkInterface(name, used); err == nil || !strings.Contains(text, "random") {
			break
		}
	}
	return name, err
}

func render(text, uuid string, num int) (string, error) {
	t, err := template.New("containerInterface").Funcs(template.FuncMap{
		"uuid":      func() string { return uuid },
		"shortuuid": func() string { return uuid[:min(8, len(uuid))] },
		"num":       func() int { return num },
		"random":    random,
	}).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("parse template %q: %w", text, err)
	}
	var out strings.Builder
	if err := t.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("execute template %q: %w", text, err)
	}
	return out.String(), nil
}

func random(n int) (string, error) {
	if n < 1 || n > maxRandom {
		return "", fmt.Errorf("random %d: want 1 to %d", n, maxRandom)
	}
	return strings.ToLower(rand.Text() + rand.Text())[:n], nil
}

// checkInterface applies the kernel's rules (dev_valid_name in net/core/dev.c).
func checkInterface(name string, used []string) error {
	switch {
	case name == "":
		return errors.New("the interface's name is empty")
	case len(name) > maxInterface:
		return fmt.Errorf("interface %q: the name is longer than %d bytes", name, maxInterface)
	case name == "." || name == ".." || name == "all" || name == "default" || strings.ContainsAny(name, "/: \t\n\v\f\r"):
		return fmt.Errorf("interface %q: Linux refuses the name", name)
	case name == "lo":
		return errors.New(`interface "lo": the name of every pod's loopback device`)
	}
	if slices.Contains(used, name) {
		return fmt.Errorf("interface %q: another network of the pod uses the name", name)
	}
	return nil
}

// checkTemplate reports why a template works for no pod, or nil.
func checkTemplate(text string) error {
	_, err := interfaceName(text, "00000000-0000-4000-8000-000000000000", nil)
	return err
}
