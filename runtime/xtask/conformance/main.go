// Command conformance compiles OPA's own test cases to WebAssembly, for another host of such modules to run.
//
// It writes modules/<digest>.wasm, each once, and cases.json: the cases in the order of their names, each with what OPA expects of its
// own host for Wasm (internal/wasm/sdk/test/e2e, whose exceptions are kept to).
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/types"
	"github.com/open-policy-agent/opa/v1/util"
)

// Case is one test case, compiled.
type Case struct {
	// Name tells it from all others: version, folder and note.
	Name string `json:"name"`
	// Module is the digest of its module; none where it cannot be compiled.
	Module string `json:"module,omitempty"`
	// Uncompiled is why it cannot be compiled.
	Uncompiled string `json:"uncompiled,omitempty"`
	// Excused is why OPA's own host need not pass it.
	Excused string `json:"excused,omitempty"`
	// Input and Data are documents: JSON, or in Rego's own form.
	Input string `json:"input,omitempty"`
	Data  string `json:"data,omitempty"`
	// Of these, one is there.
	WantDefined *bool             `json:"want_defined,omitempty"`
	WantResult  *[]map[string]any `json:"want_result,omitempty"`
	WantError   *string           `json:"want_error,omitempty"`
	// SortBindings has values of bindings that are arrays compared as sets are.
	SortBindings bool `json:"sort_bindings,omitempty"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: conformance OPA-SOURCE FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(source, folder string) error {
	// OPA's host for Wasm registers it too.
	rego.RegisterBuiltin1(&rego.Function{
		Name: "test.sleep",
		Decl: types.NewFunction(types.Args(types.S), types.NewNull()),
	}, func(rego.BuiltinContext, *ast.Term) (*ast.Term, error) { return ast.NullTerm(), nil })

	excused, err := exceptions(filepath.Join(source, "internal/wasm/sdk/test/e2e/exceptions.yaml"))
	if err != nil {
		return err
	}
	modules := filepath.Join(folder, "modules")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		return err
	}

	type job struct {
		version ast.RegoVersion
		name    string
		tc      cases.TestCase
	}
	var jobs []job
	testdata := filepath.Join(source, "v1/test/cases/testdata")
	for name, version := range map[string]ast.RegoVersion{"v0": ast.RegoV0, "v1": ast.RegoV1} {
		set, err := cases.Load(filepath.Join(testdata, name))
		if err != nil {
			return err
		}
		for _, tc := range set.Cases {
			file, err := filepath.Rel(testdata, tc.Filename)
			if err != nil {
				return err
			}
			jobs = append(jobs, job{version, filepath.ToSlash(filepath.Dir(file)) + ": " + tc.Note, tc})
		}
	}

	all := make([]Case, len(jobs))
	errs := make([]error, len(jobs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := range next {
				all[i], errs[i] = compile(jobs[i].version, jobs[i].name, jobs[i].tc, excused, modules)
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	sort.SliceStable(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	// Some notes stand for several cases of one file.
	seen := map[string]int{}
	for i := range all {
		seen[all[i].Name]++
		if count := seen[all[i].Name]; count > 1 {
			all[i].Name = fmt.Sprintf("%s (%d)", all[i].Name, count)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "cases.json"), text, 0o644)
}

func exceptions(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	excused := map[string]string{}
	if err := util.Unmarshal(text, &excused); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for note := range excused {
		if strings.Contains(note, "*") {
			return nil, fmt.Errorf("%s: %q is a pattern: this program knows none", file, note)
		}
	}
	return excused, nil
}

func compile(version ast.RegoVersion, name string, tc cases.TestCase, excused map[string]string, folder string) (Case, error) {
	c := Case{Name: name, Excused: excused[tc.Note], SortBindings: tc.SortBindings, WantDefined: tc.WantDefined}
	switch {
	case tc.WantDefined != nil:
	case tc.WantResult != nil:
		c.WantResult = tc.WantResult
	case (tc.WantErrorCode != nil || tc.WantError != nil) && tc.StrictError:
		// A module has no strict mode: what would be an error is undefined.
		c.WantResult = &[]map[string]any{}
	case tc.WantErrorCode != nil:
		c.WantError = tc.WantErrorCode
	case tc.WantError != nil:
		c.WantError = tc.WantError
	default:
		return c, fmt.Errorf("%s: it expects nothing", name)
	}
	if tc.Data != nil {
		text, err := json.Marshal(*tc.Data)
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		c.Data = string(text)
	}
	if tc.InputTerm != nil {
		term, err := ast.ParseTerm(*tc.InputTerm)
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		c.Input = term.String()
	} else if tc.Input != nil {
		text, err := json.Marshal(*tc.Input)
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		c.Input = string(text)
	}

	options := []func(*rego.Rego){
		rego.Query(tc.Query),
		rego.SetRegoVersion(version),
		rego.Capabilities(ast.CapabilitiesForThisVersion(ast.CapabilitiesExperimentalKeywords(tc.ExperimentalKeywords))),
	}
	for i, module := range tc.Modules {
		options = append(options, rego.Module(fmt.Sprintf("module-%d.rego", i), module))
	}
	result, err := rego.New(options...).Compile(context.Background())
	if err != nil {
		c.Uncompiled = err.Error()
		return c, nil
	}
	digest := sha256.Sum256(result.Bytes)
	c.Module = hex.EncodeToString(digest[:])
	file := filepath.Join(folder, c.Module+".wasm")
	if _, err := os.Stat(file); err == nil {
		return c, nil
	}
	// Several workers may write the same one.
	fresh, err := os.CreateTemp(folder, "new-*")
	if err != nil {
		return c, err
	}
	if _, err := fresh.Write(result.Bytes); err != nil {
		return c, err
	}
	if err := fresh.Close(); err != nil {
		return c, err
	}
	return c, os.Rename(fresh.Name(), file)
}
