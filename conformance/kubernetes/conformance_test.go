// The conformance suite of the Gateway API, as run.py starts it.
package kubernetes

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/pkg/features"
)

var (
	only     = flag.String("only-tests", "", "Comma-separated list of tests to run, instead of the whole suite")
	listOnly = flag.Bool("list-tests", false, "Print the names of the tests that are not for meshes")
)

// TestConformance runs the suite without the tests of meshes, which --all-features would include.
func TestConformance(t *testing.T) {
	mesh := features.SetsToNamesSet(features.MeshCoreFeatures, features.MeshExtendedFeatures)
	var names []string
	for _, test := range tests.ConformanceTests {
		if !mesh.HasAny(test.Features...) {
			names = append(names, test.ShortName)
		}
	}
	if *listOnly {
		slices.Sort(names)
		t.Logf("tests:\n%s", strings.Join(names, "\n"))
		return
	}
	options := conformance.DefaultOptions(t)
	options.ExemptFeatures = append(options.ExemptFeatures, mesh.UnsortedList()...)
	if *only != "" {
		wanted := strings.Split(*only, ",")
		for _, name := range wanted {
			if !slices.Contains(names, name) {
				t.Fatalf("test %q does not exist", name)
			}
		}
		for _, name := range names {
			if !slices.Contains(wanted, name) {
				options.SkipTests = append(options.SkipTests, name)
			}
		}
	}
	conformance.RunConformanceWithOptions(t, options)
}
