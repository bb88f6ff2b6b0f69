plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "org.kerasbert.sample"
    compileSdk = 35
    defaultConfig {
        applicationId = "org.kerasbert.sample"
        minSdk = 24
        targetSdk = 35
    }
    androidResources { noCompress += "tflite" }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_11
        targetCompatibility = JavaVersion.VERSION_11
    }
    kotlinOptions { jvmTarget = "11" }
}

dependencies {
    implementation(project(":kerasbert"))
    implementation("org.jetbrains.kotlinx:kotlinx-coroutines-android:1.8.1")
}
