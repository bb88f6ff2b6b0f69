plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
    id("maven-publish")
}

group = "org.kerasbert"
version = Regex("KB_RELEASE \"([0-9.]+)\"").find(file("src/main/cpp/kerasbert.h").readText())!!.groupValues[1]

android {
    namespace = "org.kerasbert"
    compileSdk = 35
    defaultConfig {
        minSdk = 24 // java.util.function
        consumerProguardFiles("consumer-rules.pro")
        ndk { abiFilters += listOf("arm64-v8a", "armeabi-v7a", "x86_64") }
        externalNativeBuild {
            cmake {
                arguments += listOf("-DBUILD_SHARED_LIBS=ON", "-DKERASBERT_JNI=ON", "-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON")
                targets += "kerasbert"
            }
        }
    }
    externalNativeBuild { cmake { path = file("src/main/cpp/CMakeLists.txt") } }
    buildFeatures { prefabPublishing = true }
    prefab { create("kerasbert") { headers = "src/main/prefab" } }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_11
        targetCompatibility = JavaVersion.VERSION_11
    }
    kotlinOptions { jvmTarget = "11" }
    publishing { singleVariant("release") }
}

dependencies {
    api("com.google.ai.edge.litert:litert:2.1.6") // libLiteRt.so; or later
    api("org.jetbrains.kotlinx:kotlinx-coroutines-core:1.8.1")
}

publishing {
    publications { register<MavenPublication>("release") { afterEvaluate { from(components["release"]) } } }
}
